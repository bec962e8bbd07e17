// The map: the paths between nodes, the groups that it draws, and where bands and their labels lie.

import { expect, test } from "bun:test";
import { pathOfCurve, pointAt, waysOf } from "../../../src/console/map/band-ways.ts";
import {
  columnsOf,
  groupSize,
  pitchOf,
  squareAt,
  squaresFor,
  squaresPath,
} from "../../../src/console/map/group-boxes.ts";
import { edgesOf, worstFirst, type Path } from "../../../src/console/map/node-paths.ts";
import {
  drawnOf,
  hubOf,
  isPair,
  kindsOf,
  pairWords,
  type Group,
  type Pair,
} from "../../../src/console/map/groups.ts";
import { centreOf, overlap, place, type Box } from "../../../src/console/map/places-on-ring.ts";
import { heatLevel } from "../../../src/console/map/heat.ts";

const node = (id: number, groups: readonly string[] = [], more = {}) => ({
  id,
  name: `node-${id}`,
  ip_address: `10.77.0.${id}`,
  groups: [...groups],
  online: true,
  is_lighthouse: false,
  subnets: [],
  state: "active" as const,
  ...more,
});
const path = (node: number, peer: number, more: Partial<Path> = {}): Path => ({
  node,
  peer,
  path: "direct",
  relays: [],
  relays_away: false,
  probe: "answers",
  rtt_ms: 3,
  loss: 0,
  reported_at: "2026-11-01T00:00:00Z",
  ...more,
});

test("both ends of a pair are one edge, and the worse end counts", () => {
  const all = [1, 2, 3].map((id) => node(id));
  expect(edgesOf([path(1, 2), path(2, 1, { path: "relayed", relays: ["hub"], rtt_ms: 9 })], all)).toEqual([
    { from: 1, to: 2, kind: "relayed", rttMs: 9, relays: ["hub"] },
  ]);
  expect(edgesOf([path(2, 3, { probe: "broken", path: "none" }), path(3, 2)], all)).toMatchObject([
    { kind: "broken" },
  ]);
  // The node that reports a broken path is named first, whichever report comes last.
  for (const paths of [
    [path(3, 2, { probe: "broken" }), path(2, 3)],
    [path(2, 3), path(3, 2, { probe: "broken" })],
  ])
    expect(edgesOf(paths, all)).toMatchObject([{ from: 3, to: 2, kind: "broken" }]);
  // Neither carries anything, is of a node that left, or has a peer that is no node.
  expect(
    edgesOf([path(1, 3, { path: "none" }), path(1, 9), path(9, 1), path(1, 2, { peer: null })], all),
  ).toEqual([]);
});

test("what an away node reports, or an away relay carries, is old, unless the other end knows better", () => {
  const [a, b] = [node(1), node(2)];
  const hub = node(3, [], { online: false });
  const kinds = (...paths: Path[]) => edgesOf(paths, [a, b, hub]).map(({ kind, oldAt }) => [kind, oldAt]);
  const at = Date.UTC(2026, 10, 1);
  const relayed = { path: "relayed" as const, relays: ["10.77.0.3"], relays_away: true };
  expect(kinds(path(1, 2, relayed))).toEqual([["relayed", at]]);
  expect(kinds(path(1, 2, { ...relayed, relays_away: false }))).toEqual([["relayed", undefined]]);
  expect(kinds(path(1, 2, relayed), path(2, 1))).toEqual([["direct", undefined]]);
  expect(kinds(path(3, 1, { probe: "broken" }))).toEqual([["broken", at]]);
  expect(kinds(path(3, 1, { probe: "broken" }), path(1, 3))).toEqual([["direct", undefined]]);
  expect(kinds(path(1, 2), path(2, 1))).toEqual([["direct", undefined]]);
  // It does not reach one that is away: that is no broken path.
  expect(kinds(path(1, 3, { probe: "broken" }))).toEqual([["broken", at]]);
});

test("broken paths come first, then the slowest; what is old comes last", () => {
  const edge = (kind: "direct" | "broken", rttMs: number | undefined, oldAt?: number) => ({
    from: 1,
    to: 2,
    kind,
    rttMs,
    relays: [],
    ...(oldAt === undefined ? {} : { oldAt }),
  });
  const all = [
    edge("direct", 3),
    edge("broken", undefined, 7),
    edge("direct", 90),
    edge("broken", undefined),
  ];
  expect(all.toSorted(worstFirst).map(({ kind, rttMs, ...rest }) => [kind, rttMs, "oldAt" in rest])).toEqual([
    ["broken", undefined, false],
    ["direct", 90, false],
    ["direct", 3, false],
    ["broken", undefined, true],
  ]);
});

const group = (name: string | null, nodes: number, more: Partial<Group> = {}): Group => ({
  name,
  nodes,
  well: nodes,
  relayed: 0,
  broken: 0,
  away: 0,
  hubs_away: 0,
  lighthouses_away: 0,
  hubs: 0,
  paths: { direct: 0, relayed: 0, broken: 0 },
  ...more,
});

test("the group of lighthouses, relays and routers is in the middle; the others are drawn by name", () => {
  const infra = group("infra", 4, { hubs: 4 });
  // A lighthouse among many nodes makes no hub of its group; a group of phones alone has no nodes.
  const groups = [group("web", 60, { hubs: 1 }), group(null, 3), infra, group("app", 9), group("phones", 0)];
  expect(hubOf(groups)).toBe(infra);
  const { hub, ring } = drawnOf(groups);
  expect([hub?.name, ring.map(({ name }) => name)]).toEqual(["infra", ["app", "web", null]]);
  // A group that is alone is no hub of others.
  expect(drawnOf([infra])).toEqual({ hub: undefined, ring: [infra] });
});

test("away relays are drawn in red only while a path has no other way, lighthouses always", () => {
  const infra = group("infra", 9, { well: 4, broken: 1, away: 4, hubs_away: 3, lighthouses_away: 1 });
  expect(kindsOf(infra, 0)).toEqual({ need: 2, part: 0, on: 4, off: 3 });
  expect(kindsOf(infra, 5)).toEqual({ need: 4, part: 0, on: 4, off: 1 });
});

test("of many groups, the picture has the hub and the worst, as they are sorted", () => {
  const groups = Array.from({ length: 33 }, (_, at) => group(`group-${at}`, 10));
  groups.push(group("infra", 4, { hubs: 4 }));
  const { hub, ring } = drawnOf(groups);
  expect(hub?.name).toBe("infra");
  expect(ring).toHaveLength(11);
  expect(ring.every(({ name }) => Number(name?.slice(6)) < 11)).toBe(true);
});

test("a pair has its words, its colour, and is found in any order", () => {
  const pair: Pair = {
    from: "staff",
    to: null,
    direct: 100,
    relayed: 9,
    broken: 1,
    rtt_ms_median: 41.26,
    rtt_ms_95: 80,
  };
  expect(pairWords(pair)).toBe("staff – no group: 110 paths, median 41 ms, 9 relayed, 1 broken");
  expect([isPair(pair, "staff "), isPair(pair, " staff"), isPair(pair, "staff web")]).toEqual([
    true,
    true,
    false,
  ]);
  expect([null, 0, 9.9, 10, 25, 79, 80, 900].map(heatLevel)).toEqual([0, 1, 1, 2, 3, 4, 5, 5]);
});

test("a box has a square for each of its nodes, none outside of it and none on another", () => {
  for (const nodes of [0, 1, 12, 60, 124, 351, 1500]) {
    const pitch = pitchOf(nodes);
    const { width, height } = groupSize(nodes, pitch, 10, true);
    const places = Array.from({ length: nodes }, (_, at) => squareAt(at, nodes, pitch));
    expect(new Set(places.map(({ x, y }) => `${x} ${y}`)).size).toBe(nodes);
    expect(
      places.filter(({ x, y }) => x < 12 || y < 30 || x + pitch > width - 8 || y + pitch > height - 20),
    ).toEqual([]);
    // Not more than fits beside others.
    expect([nodes, width <= 340, height <= 260]).toEqual([nodes, true, true]);
  }
  expect([12, 58, 60, 85].map(columnsOf)).toEqual([5, 10, 11, 13]);
  expect(squaresPath([{ x: 12, y: 34 }], "need", 11)).toMatch(/^M16.5 33l5.5 10h-11z$/);
  // Each kind that is there has a square.
  expect(squaresFor({ need: 1, part: 0, on: 95, off: 4 }, 10)).toEqual([
    "need",
    ...Array.from({ length: 10 }, () => "on" as const),
    "off",
  ]);
});

/** A ring of boxes around one in the middle, with a band between each two of the ring. */
function scene(count: number) {
  const sizes = Array.from({ length: count }, (_, at) => ({
    width: 100 + ((at * 37) % 60),
    height: 70 + ((at * 29) % 50),
  }));
  const ground = { ellipse: { x: 258, y: 216 }, gap: 28, margin: 16, least: { width: 692, height: 420 } };
  const { ring, middle, width, height } = place(sizes, { width: 148, height: 116 }, ground);
  const boxes = middle === undefined ? ring : [...ring, middle];
  const bands = ring.flatMap((from, a) =>
    ring.slice(a + 1).map((to, b) => ({
      key: `${a} ${a + b + 1}`,
      from,
      to,
      label: { width: 82, height: 20 },
      weight: a,
    })),
  );
  const hub = centreOf(middle ?? boxes[0] ?? { x: 0, y: 0, width: 0, height: 0 });
  return { boxes, bands, size: { width, height }, spokes: ring.map((box) => [centreOf(box), hub] as const) };
}

const contains = (box: Box, { x, y }: { x: number; y: number }) =>
  x > box.x && x < box.x + box.width && y > box.y && y < box.y + box.height;

test("bands bend around the middle and around the boxes of others; neighbours are joined straight", () => {
  for (const count of [3, 4, 5, 6, 8, 11]) {
    const { boxes, bands, size, spokes } = scene(count);
    const ways = waysOf(bands, { boxes, size, spokes });
    for (const { key, from, to } of bands) {
      const { curve } = ways.get(key) ?? {};
      if (curve === undefined) throw new Error(`no way for ${key}`);
      const foreign = boxes.filter((box) => box !== from && box !== to);
      const hit = Array.from({ length: 25 }, (_, at) => pointAt(curve, at / 24)).filter((point) =>
        foreign.some((box) => contains(box, point)),
      );
      expect([count, key, hit]).toEqual([count, key, []]);
    }
  }
  const { boxes, bands, size } = scene(5);
  const neighbours = waysOf(bands, { boxes, size }).get("0 1")?.curve;
  expect(neighbours?.control.x).toBeCloseTo(((neighbours?.from.x ?? 0) + (neighbours?.to.x ?? 0)) / 2);
});

test("labels are in sight: within the picture, on no box and on no other label, and off the spokes where it can be", () => {
  for (const count of [3, 5, 8, 11]) {
    const { boxes, bands, size, spokes } = scene(count);
    const ways = waysOf(bands, { boxes, size, spokes });
    const labels = bands.flatMap(({ key, label }) => {
      const at = ways.get(key)?.label;
      return at === undefined ? [] : [{ x: at.x - label.width / 2, y: at.y - label.height / 2, ...label }];
    });
    // Of a tangle, the first ones have theirs.
    expect(labels.length).toBeGreaterThanOrEqual(Math.min(bands.length, 10));
    for (const [at, label] of labels.entries()) {
      expect([...boxes, ...labels.slice(at + 1)].filter((other) => overlap(label, other))).toEqual([]);
      expect([label.x >= 0, label.y >= 0, label.x + 82 <= size.width, label.y + 20 <= size.height]).toEqual([
        true,
        true,
        true,
        true,
      ]);
    }
    // The same boxes give the same picture.
    expect(waysOf(bands, { boxes, size, spokes })).toEqual(ways);
  }
});

test("a dash runs beside its band", () => {
  const curve = { from: { x: 0, y: 0 }, control: { x: 50, y: 0 }, to: { x: 100, y: 0 } };
  expect(pathOfCurve(curve)).toBe("M0 0Q50 0 100 0");
  expect(pathOfCurve(curve, 6)).toBe("M0 6Q50 6 100 6");
});
