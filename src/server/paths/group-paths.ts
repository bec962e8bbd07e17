// Nodes and paths summed by group, for the map of many nodes and for the history of paths. Read in slices, and kept for a
// time in proportion to what it took, so that any number of open consoles costs a fiftieth of a processor at most.

import { maxMapGroups, maxNamedPaths, type BetweenGroups, type GroupPaths } from "../../api/paths.ts";
import { formatTime } from "../../base/quantities.ts";
import { mapGroup } from "../../protocol/shown-groups.ts";
import { inSlices, makeHeavyWork, nextRound } from "../http/heavy-work.ts";
import type { ServerOptions } from "../options.ts";
import type { Reader } from "../store/database.ts";
import { isHub, isOnline } from "../store/nodes.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { computed, integerOrNull, joined, queryAll } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { paths } from "../store/tables/paths.ts";

type Deps = Pick<ServerOptions, "db" | "system"> & { changes: Parameters<typeof isOnline>[2] };

export type GroupPathSums = {
  /** `ownerId`: a member, who sees the paths of their own nodes. */
  of(orgId: number, ownerId: number | undefined): Promise<Sums>;
};
export type Sums = {
  answer: GroupPaths;
  /** Groups by name; null: the nodes without one. */
  between(from: string | null, to: string | null): BetweenGroups;
  /** Whether the node answers a peer that is online. */
  isReached(nodeId: number): boolean;
};

/** Rows of one query: few enough that check-ins do not wait for it. */
const sliceSize = 500;
/** What was read is kept for so many times what it took, but not longer than `mostMs`. */
const keptFor = 50;
const mostMs = 15_000;
const mostKept = 64;

export function makeGroupPaths({ db, system, changes }: Deps): GroupPathSums {
  const [keepNodes, keepSums] = [makeKept<Found>(system), makeKept<Sums>(system)];
  const inTurn = makeHeavyWork({ perCaller: 2, perOwner: 256 });
  const compute = async (orgId: number, ownerId: number | undefined) => {
    const now = system.now();
    const isSeen = (node: NodeFound) => isOnline({ ...node, state: "active" }, now, changes);
    const found = await keepNodes(`${orgId}`, () => readNodes(db, orgId, isSeen));
    const read = await readEdges(db, orgId, found, ownerId);
    return inSlices(sumsOf(found, read, now));
  };
  return {
    of(orgId, ownerId) {
      const caller = `${orgId}/${ownerId ?? ""}`;
      return keepSums(caller, () => inTurn({ owner: orgId, caller }, () => compute(orgId, ownerId)));
    },
  };
}

function makeKept<T>({ monotonic }: Pick<Deps["system"], "monotonic">) {
  const kept = new Map<string, { until: number; value: Promise<T> }>();
  return (key: string, read: () => Promise<T>): Promise<T> => {
    const [now, began] = [monotonic(), performance.now()];
    for (const [each, { until }] of kept) if (until < now) kept.delete(each);
    const known = kept.get(key);
    if (known !== undefined) return known.value;
    if (kept.size >= mostKept) kept.delete(kept.keys().next().value ?? "");
    const entry = { until: Number.POSITIVE_INFINITY, value: read() };
    kept.set(key, entry);
    const keep = () => {
      entry.until = monotonic() + Math.min(mostMs, keptFor * (performance.now() - began));
    };
    entry.value.then(keep, () => void (kept.get(key) === entry && kept.delete(key)));
    return entry.value;
  };
}

type Summed = {
  id: number;
  name: string;
  group: string | null;
  ownerId: number | null;
  isOnline: boolean;
  isPhone: boolean;
  isHub: boolean;
};
type Found = {
  all: Summed[];
  byId: Map<number, number>;
  byAddress: Map<string, number>;
  /** Names and addresses of nodes that are away: nodes report their relays by the one or the other. */
  away: Set<string>;
};

const nodePick = nodes.pick(
  "id",
  "orgId",
  "name",
  "ip",
  "ip6",
  "groups",
  "ownerGroups",
  "ownerId",
  "phone",
  "isLighthouse",
  "isRelay",
  "subnets",
);
const seenPick = joined("n", nodePick, "s", computed({ lastCheckinAt: integerOrNull() }));
type NodeFound = ReturnType<typeof seenPick.parse>;
const nodeSlice = `SELECT ${nodePick.select()}, last_checkin_at
  FROM ${nodesWithSightings} WHERE org_id = $1 AND state = 'active' AND id > $2 ORDER BY id LIMIT ${sliceSize}`;

async function readNodes(
  reader: Reader,
  orgId: number,
  isSeen: (node: NodeFound) => boolean,
): Promise<Found> {
  const found: Found = { all: [], byId: new Map(), byAddress: new Map(), away: new Set() };
  for (let last = 0; ;) {
    const rows = await queryAll(reader, seenPick, nodeSlice, [orgId, last]);
    for (const row of rows) {
      const at = found.all.length;
      found.byId.set(row.id, at);
      const addresses = [row.ip, row.ip6].filter((address) => address !== null);
      for (const address of addresses) found.byAddress.set(address, at);
      const isHere = isSeen(row);
      if (!isHere) for (const word of [row.name, ...addresses]) found.away.add(word);
      found.all.push({
        id: row.id,
        name: row.name,
        group: mapGroup({ groups: row.groups, owner_groups: row.ownerGroups }),
        ownerId: row.ownerId,
        isOnline: isHere,
        isPhone: row.phone !== null,
        isHub: isHub(row),
      });
      last = row.id;
    }
    if (rows.length < sliceSize) return found;
    await nextRound();
  }
}

const kindNames = ["direct", "relayed", "broken"] as const;
const [relayed, broken] = [1, 2];
/** A pair of nodes by their places in `Found`, the smaller one first. `rtt` in ms; NaN without one. */
type Edge = { a: number; b: number; kind: number; rtt: number };

/** By pair; and by place of a node, the worst kind that it reports itself, and whether another says that it answers. */
type Read = { edges: Map<number, Edge>; worst: Uint8Array; reached: Uint8Array };

const pathPick = paths.pick("nodeId", "peer", "path", "relays", "probe", "rttUs");
const pathSlice = `SELECT ${pathPick.select()} FROM paths
  WHERE org_id = $1 AND (node_id, peer) > ($2, $3) AND node_id <= $4 ORDER BY node_id, peer LIMIT ${sliceSize}`;
type PathFound = ReturnType<typeof pathPick.parse>;

async function readEdges(
  reader: Reader,
  orgId: number,
  found: Found,
  ownerId: number | undefined,
): Promise<Read> {
  const ofNodes = () => new Uint8Array(found.all.length);
  const read: Read = { edges: new Map(), worst: ofNodes(), reached: ofNodes() };
  const ends = found.all.map(({ id }) => id);
  const own = found.all.filter((node) => node.ownerId === ownerId).map(({ id }) => id);
  const ranges =
    ownerId === undefined ? [[0, ends.at(-1) ?? 0] as const] : own.map((id) => [id, id] as const);
  for (const [first, end] of ranges) {
    for (let [node, peer] = [first, ""]; ;) {
      const rows = await queryAll(reader, pathPick, pathSlice, [orgId, node, peer, end]);
      for (const row of rows) addEdge(read, found, row);
      await nextRound();
      const last = rows.at(-1);
      if (last === undefined || rows.length < sliceSize) break;
      [node, peer] = [last.nodeId, last.peer];
    }
  }
  return read;
}

/**
 * Both ends report a path: of the two, the worse counts. What a node reported before it went away does not, nor does a path
 * over relays that are all away.
 */
function addEdge(
  { edges, worst, reached }: Read,
  { all, byId, byAddress, away }: Found,
  row: PathFound,
): void {
  const [from, to] = [byId.get(row.nodeId), byAddress.get(row.peer)];
  const reporter = from === undefined ? undefined : all[from];
  if (from === undefined || to === undefined || from === to || reporter?.isOnline !== true) return;
  if (row.probe === "answers") reached[to] = 1;
  const kind = row.probe === "broken" ? broken : kindNames.findIndex((name) => name === row.path);
  if (kind < 0) return;
  const isOver = row.relays.length > 0 && row.relays.every((relay) => away.has(relay));
  if (isOver && kind === relayed) return;
  worst[from] = Math.max(worst[from] ?? 0, kind);
  const [a, b] = [Math.min(from, to), Math.max(from, to)];
  const rtt = row.rttUs === null ? Number.NaN : row.rttUs / 1000;
  const key = a * all.length + b;
  const known = edges.get(key);
  if (known === undefined) {
    edges.set(key, { a, b, kind, rtt });
    return;
  }
  known.kind = Math.max(known.kind, kind);
  if (Number.isNaN(known.rtt) || rtt > known.rtt) known.rtt = rtt;
}

type Kinds = { direct: number; relayed: number; broken: number };
const noKinds = (): Kinds => ({ direct: 0, relayed: 0, broken: 0 });
const nameOf = (kind: number) => kindNames[kind] ?? "broken";

function* sumsOf(
  { all, byId }: Found,
  { edges, worst, reached }: Read,
  now: number,
): Generator<undefined, Sums> {
  const groups = yield* groupsOf(all, worst);
  const [pairs, totals] = [new Map<string, Pair>(), newPair(null, null)];
  const packed = emptyPack(edges.size);
  const first: Edge[] = [];
  let at = 0;
  for (const edge of edges.values()) {
    const [one, other] = [all[edge.a]?.group ?? null, all[edge.b]?.group ?? null];
    count(pairOf(pairs, one, other), edge);
    count(totals, edge);
    for (const name of one === other ? [one] : [one, other]) {
      const group = groups.get(name);
      if (group !== undefined) group.paths[nameOf(edge.kind)] += 1;
    }
    if (edge.kind === broken && first.length < maxNamedPaths) first.push(edge);
    packed.put(at, edge);
    if (at++ % 200 === 0) yield;
  }
  const sorted = [...groups.values()].sort(worseGroup);
  const shown = sorted.slice(0, maxMapGroups);
  const names = new Set(shown.map(({ name }) => name));
  const answers: ReturnType<typeof answerOf>[] = [];
  for (const pair of pairs.values()) {
    yield;
    if (names.has(pair.from) && names.has(pair.to)) answers.push(answerOf(pair));
  }
  const { from: _, to: __, ...sums } = answerOf(totals);
  yield;
  const nodesOf = (some: readonly Group[]) => some.reduce((sum, group) => sum + group.nodes, 0);
  const away = sorted.reduce((sum, group) => sum + group.away, 0);
  const counted = nodesOf(sorted);
  return {
    answer: {
      at: formatTime(now),
      totals: { nodes: counted, online: counted - away, ...sums },
      groups: shown,
      left_out: { groups: sorted.length - shown.length, nodes: counted - nodesOf(shown) },
      pairs: answers.sort((a, b) => byName(a.from, b.from) || byName(a.to, b.to)),
      broken: first.map((edge) => namedPath(all, worst, edge)),
    },
    between: (from, to) => between({ all, worst, packed }, from, to),
    isReached: (nodeId) => reached[byId.get(nodeId) ?? -1] === 1,
  };
}

type Group = GroupPaths["groups"][number];

function* groupsOf(
  all: readonly Summed[],
  worst: Uint8Array,
): Generator<undefined, Map<string | null, Group>> {
  const groups = new Map<string | null, Group>();
  for (const [at, node] of all.entries()) {
    if (at % 200 === 0) yield;
    const name = node.group;
    const empty = { name, nodes: 0, well: 0, relayed: 0, broken: 0, away: 0, hubs: 0, paths: noKinds() };
    const group = groups.get(name) ?? empty;
    groups.set(name, group);
    if (node.isPhone) continue;
    group.nodes += 1;
    group[node.isOnline ? (states[worst[at] ?? 0] ?? "well") : "away"] += 1;
    if (node.isHub) group.hubs += 1;
  }
  return groups;
}

/** Of a node that is online, by the worst path that it reports. */
const states = ["well", "relayed", "broken"] as const;

/** By name, those without one last. */
function byName(a: string | null, b: string | null): number {
  if (a === b) return 0;
  return b === null || (a !== null && a < b) ? -1 : 1;
}

function worseGroup(a: Group, b: Group): number {
  const worse = [b.paths.broken - a.paths.broken, b.away - a.away, b.paths.relayed - a.paths.relayed];
  return worse.find((each) => each !== 0) ?? byName(a.name, b.name);
}

type Pair = { from: string | null; to: string | null; kinds: Kinds; rtts: number[] };
const newPair = (from: string | null, to: string | null): Pair => ({ from, to, kinds: noKinds(), rtts: [] });

function pairOf(pairs: Map<string, Pair>, one: string | null, other: string | null): Pair {
  const [from, to] = byName(one, other) <= 0 ? [one, other] : [other, one];
  // Names have no blanks.
  const key = `${from ?? ""} ${to ?? ""}`;
  const pair = pairs.get(key) ?? newPair(from, to);
  pairs.set(key, pair);
  return pair;
}

function count({ kinds, rtts }: Pair, { kind, rtt }: Edge): void {
  kinds[nameOf(kind)] += 1;
  if (kind !== broken && !Number.isNaN(rtt)) rtts.push(rtt);
}

function answerOf({ from, to, kinds, rtts }: Pair) {
  const sorted = new Float64Array(rtts).sort();
  const at = (share: number) => sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? null;
  return { from, to, ...kinds, rtt_ms_median: at(0.5), rtt_ms_95: at(0.95) };
}

type Named = BetweenGroups["worst"][number];

function namedPath(all: readonly Summed[], reported: Uint8Array, { a, b, kind, rtt }: Edge): Named {
  const [one, other] = [all[a], all[b]];
  // The one that reports it is named first.
  const isOther = kind === broken && reported[a] !== broken;
  const [node, peer] = isOther ? [other, one] : [one, other];
  return {
    node: node?.id ?? 0,
    node_name: node?.name ?? "",
    group: node?.group ?? null,
    peer: peer?.id ?? 0,
    peer_name: peer?.name ?? "",
    peer_group: peer?.group ?? null,
    kind: nameOf(kind),
    rtt_ms: kind === broken || Number.isNaN(rtt) ? null : rtt,
  };
}

type Packed = { put(at: number, edge: Edge): void; get(at: number): Edge; length: number };

/** Kept while the sums are: four numbers a path instead of an object. */
function emptyPack(length: number): Packed {
  const [ends, kinds] = [new Uint32Array(2 * length), new Uint8Array(length)];
  const rtts = new Float64Array(length);
  return {
    length,
    put(at, { a, b, kind, rtt }) {
      ends.set([a, b], 2 * at);
      kinds[at] = kind;
      rtts[at] = rtt;
    },
    get: (at) => ({
      a: ends[2 * at] ?? 0,
      b: ends[2 * at + 1] ?? 0,
      kind: kinds[at] ?? broken,
      rtt: rtts[at] ?? Number.NaN,
    }),
  };
}

/** Upper bounds of round trips, ms. */
const bounds = [1, 2, 5, 10, 20, 40, 80, 160, 320, 1000, null];

function between(
  { all, worst: reported, packed }: { all: readonly Summed[]; worst: Uint8Array; packed: Packed },
  one: string | null,
  other: string | null,
): BetweenGroups {
  const [from, to] = byName(one, other) <= 0 ? [one, other] : [other, one];
  const pair = newPair(from, to);
  const edges: Edge[] = [];
  for (let at = 0; at < packed.length; at++) {
    const edge = packed.get(at);
    const [first, second] = [all[edge.a]?.group ?? null, all[edge.b]?.group ?? null];
    if (!((first === from && second === to) || (first === to && second === from))) continue;
    count(pair, edge);
    edges.push(edge);
  }
  const weight = ({ kind, rtt }: Edge) => (kind === broken ? Number.MAX_VALUE : Number.isNaN(rtt) ? -1 : rtt);
  const worst = edges.sort((a, b) => weight(b) - weight(a)).slice(0, maxNamedPaths);
  const round_trips = bounds.map((up_to_ms, at) => {
    const [above, upTo] = [bounds[at - 1] ?? -1, up_to_ms ?? Number.POSITIVE_INFINITY];
    return { up_to_ms, paths: pair.rtts.filter((rtt) => rtt > above && rtt <= upTo).length };
  });
  return { ...answerOf(pair), round_trips, worst: worst.map((edge) => namedPath(all, reported, edge)) };
}
