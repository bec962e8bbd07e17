// The map: which edges and dots it has, and where the dots lie.

import { expect, test } from "bun:test";
import { edgesOf, graphOf, maxDots, type Path } from "../../src/console/map/graph.ts";
import { placeLabels, type Label } from "../../src/console/map/labels.ts";
import { placesOf, type Place } from "../../src/console/map/layout.ts";

const machine = (id: number, groups: readonly string[] = [], more = {}) => ({
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
const never = new AbortController().signal;

test("both ends of a pair are one edge, and the worse end counts", () => {
  const all = [1, 2, 3].map((id) => machine(id));
  expect(edgesOf([path(1, 2), path(2, 1, { path: "relayed", relays: ["hub"], rtt_ms: 9 })], all)).toEqual([
    { from: "1", to: "2", kind: "relayed", pairs: 1, rttMs: 9, relays: ["hub"] },
  ]);
  expect(edgesOf([path(2, 3, { probe: "broken", path: "none" }), path(3, 2)], all)).toMatchObject([
    { kind: "broken" },
  ]);
  // Neither carries anything, is of a machine that left, or has a peer that is no machine.
  expect(
    edgesOf([path(1, 3, { path: "none" }), path(1, 9), path(9, 1), path(1, 2, { peer: null })], all),
  ).toEqual([]);
});

test("what an away machine reports, or an away relay carries, is old, unless the other end knows better", () => {
  const [a, b] = [machine(1), machine(2)];
  const hub = machine(3, [], { online: false });
  const kinds = (...paths: Path[]) => edgesOf(paths, [a, b, hub]).map(({ kind, oldAt }) => [kind, oldAt]);
  const at = Date.UTC(2026, 10, 1);
  const relayed = { path: "relayed" as const, relays: ["10.77.0.3"], relays_away: true };
  expect(kinds(path(1, 2, relayed))).toEqual([["relayed", at]]);
  expect(kinds(path(1, 2, { ...relayed, relays_away: false }))).toEqual([["relayed", undefined]]);
  expect(kinds(path(1, 2, relayed), path(2, 1))).toEqual([["direct", undefined]]);
  expect(kinds(path(3, 1, { probe: "broken" }))).toEqual([["broken", at]]);
  expect(kinds(path(3, 1, { probe: "broken" }), path(1, 3))).toEqual([["direct", undefined]]);
  expect(kinds(path(1, 2), path(2, 1))).toEqual([["direct", undefined]]);
});

test("a group shows its machines and those that they reach; revoked ones are not drawn", () => {
  const machines = [
    machine(1, ["web"]),
    machine(2, ["db"], { is_lighthouse: true }),
    machine(3, ["db"], { subnets: ["192.0.2.0/24"] }),
    machine(4, ["web"], { state: "revoked" }),
  ];
  const graph = graphOf(machines, [path(1, 2), path(2, 3)], "web");
  expect(graph.dots.map(({ label, shape }) => [label, shape])).toEqual([
    ["node-1", "machine"],
    ["node-2", "lighthouse"],
  ]);
  expect(graph.edges).toHaveLength(1);
  expect(graphOf(machines, [], "").dots.map(({ shape }) => shape)).toEqual([
    "machine",
    "lighthouse",
    "router",
  ]);
});

test("beyond the limit, groups are dots with counts, and their paths are counted", () => {
  const machines = Array.from({ length: maxDots + 1 }, (_, at) =>
    machine(at + 1, at % 2 === 0 ? ["web"] : []),
  );
  const paths = [path(1, 2), path(3, 2), path(2, 4, { path: "relayed" })];
  const graph = graphOf(machines, paths, "");
  expect(graph.isGrouped).toBe(true);
  expect(graph.dots.map(({ label, machines: count }) => [label, count])).toEqual([
    ["web (251)", 251],
    ["without a group (250)", 250],
  ]);
  expect(graph.edges).toMatchObject([
    { from: "web", to: "without a group", kind: "direct", pairs: 2 },
    { from: "without a group", to: "without a group", kind: "relayed", pairs: 1 },
  ]);
  expect(graphOf(machines, paths, "web").isGrouped).toBe(false);
});

test("no two dots lie on each other, and places stay when a machine leaves", async () => {
  const machines = Array.from({ length: 80 }, (_, at) => machine(at + 1, [`g${at % 4}`]));
  const paths = machines.slice(1).map(({ id }) => path(1, id));
  const places = await placesOf(graphOf(machines, paths, ""), new Map(), never);
  const all = [...(places?.values() ?? [])];
  expect(all).toHaveLength(80);
  const distance = (a: Place, b: Place) => Math.hypot(a.x - b.x, a.y - b.y);
  const closest = Math.min(...all.flatMap((a, at) => all.slice(at + 1).map((b) => distance(a, b))));
  expect(closest).toBeGreaterThan(8);
  const later = await placesOf(graphOf(machines.slice(1), paths, ""), places ?? new Map(), never);
  expect(later?.get("7")).toEqual(places?.get("7") ?? { x: 0, y: 0 });
});

test("no name of the map covers another or a dot; the first ones are placed first", () => {
  const crowd = Array.from({ length: 40 }, (_, at) => ({
    key: `${at}`,
    text: at === 0 ? "lighthouse-1" : `machine-${at}`,
    x: (at % 8) * 30,
    y: Math.floor(at / 8) * 20,
    size: 4,
  }));
  const fontSize = 11;
  const labels = placeLabels(crowd, crowd, fontSize);
  expect(labels[0]?.text).toBe("lighthouse-1");
  expect(labels.length).toBeGreaterThan(1);
  expect(labels.length).toBeLessThan(crowd.length);
  const boxOf = ({ text, x, y, anchor }: Label) => {
    const width = text.length * fontSize * 0.6;
    const left = anchor === "middle" ? x - width / 2 : anchor === "end" ? x - width : x;
    return [left, left + width, y - 0.85 * fontSize, y + 0.15 * fontSize] as const;
  };
  const areApart = (a: ReturnType<typeof boxOf>, b: ReturnType<typeof boxOf>) =>
    a[1] <= b[0] || b[1] <= a[0] || a[3] <= b[2] || b[3] <= a[2];
  for (const [at, label] of labels.entries()) {
    const box = boxOf(label);
    for (const other of labels.slice(at + 1))
      expect([label.text, other.text, areApart(box, boxOf(other))]).toEqual([label.text, other.text, true]);
    for (const { key, x, y, size } of crowd) {
      if (key === label.key) continue;
      expect([label.text, key, areApart(box, [x - size, x + size, y - size, y + size])]).toEqual([
        label.text,
        key,
        true,
      ]);
    }
  }
  // With room, each has its name.
  const apart = crowd.map((dot) => ({ ...dot, x: dot.x * 10, y: dot.y * 10 }));
  expect(placeLabels(apart, apart, fontSize)).toHaveLength(40);
});

test("machines with many paths to another group stay in theirs", async () => {
  const machines = Array.from({ length: 60 }, (_, at) => machine(at, [at < 50 ? "web" : "db"]));
  const paths = Array.from({ length: 50 }, (_, at) => [path(at, 50), path(at, 51)]).flat();
  const graph = graphOf(machines, paths, "");
  const places = (await placesOf(graph, new Map(), never)) ?? new Map<string, Place>();
  const at = (key: number) => places.get(`${key}`) ?? { x: Number.NaN, y: Number.NaN };
  const group = Array.from({ length: 8 }, (_, each) => at(52 + each));
  const middle = {
    x: group.reduce((sum, { x }) => sum + x, 0) / group.length,
    y: group.reduce((sum, { y }) => sum + y, 0) / group.length,
  };
  const far = Math.max(...group.map(({ x, y }) => Math.hypot(x - middle.x, y - middle.y)));
  for (const key of [50, 51])
    expect(Math.hypot(at(key).x - middle.x, at(key).y - middle.y)).toBeLessThan(far * 1.6);
});
