// Sums nodes and paths by group, for the map of many nodes and for the history of paths. group-paths.ts reads them. Nodes are named
// by their index in `FoundNodes.all`: it costs less memory than objects. Pure.

import { maxMapGroups, maxNamedPaths, type BetweenGroups, type GroupPaths } from "../../api/paths/paths.ts";
import { formatTime } from "../../base/quantities.ts";

export type Sums = {
  answer: GroupPaths;
  /** Groups by name; null: the nodes without one. */
  between(from: string | null, to: string | null): BetweenGroups;
};

type SummedNode = {
  id: number;
  name: string;
  group: string | null;
  ownerId: number | null;
  isOnline: boolean;
  /** It has applied its newest configuration. */
  isCurrent: boolean;
  isPhone: boolean;
  /** A hub, router or exit: other nodes have it in their configuration. */
  isConfigured: boolean;
  /** A lighthouse or a relay. */
  isHub: boolean;
  isLighthouse: boolean;
};

export type FoundNodes = {
  all: SummedNode[];
  /** The index in `all`, by id and by overlay address. */
  byId: Map<number, number>;
  byAddress: Map<string, number>;
  /** Names and addresses of nodes that are away: nodes report relays by either. */
  away: Set<string>;
};

/** The kind of a path is its index in this list: the higher, the worse. */
export const kindNames = ["direct", "relayed", "broken"] as const;
export const relayed = kindNames.indexOf("relayed");
export const broken = kindNames.indexOf("broken");

/**
 * The path of a pair of nodes: `a` and `b` are their indices in `FoundNodes.all`, a < b. `reporter`: which of them reported this kind.
 * `rtt`: ms; NaN if not measured.
 */
type Edge = { a: number; b: number; kind: number; reporter: number; rtt: number };

export type FoundEdges = {
  /** By the key of the pair, a × number of nodes + b. */
  edges: Map<number, Edge>;
  /** For each node, the worst kind of path that it reports itself. */
  worst: Uint8Array;
  /** The keys of pairs with a reported path over relays that are all away. */
  cut: Set<number>;
};

type Kinds = { direct: number; relayed: number; broken: number };
const noKinds = (): Kinds => ({ direct: 0, relayed: 0, broken: 0 });
const kindName = (kind: number) => kindNames[kind] ?? "broken";

/** To be run by `inSlices`: at each `yield` other requests may run. `now`: the time of the answer, ms. */
export function* sumsOf(
  { all }: FoundNodes,
  { edges, worst, cut }: FoundEdges,
  now: number,
): Generator<undefined, Sums> {
  const groups = yield* groupsOf(all, worst);
  const { pairs, totals, firstBroken, firstRelayed, packed } = yield* sumEdges(all, edges, groups);
  const sorted = [...groups.values()].sort(worseGroup);
  const shown = sorted.slice(0, maxMapGroups);
  const names = new Set(shown.map(({ name }) => name));
  const answers: ReturnType<typeof answerOf>[] = [];
  for (const pair of pairs.values()) {
    yield;
    if (names.has(pair.from) && names.has(pair.to)) answers.push(answerOf(pair));
  }
  const { from: _from, to: _to, ...sums } = answerOf(totals);
  yield;
  const named = (some: readonly Edge[]) => some.map((edge) => namedPath(all, edge));
  const nodesOf = (some: readonly Group[]) => some.reduce((sum, group) => sum + group.nodes, 0);
  const away = sorted.reduce((sum, group) => sum + group.away, 0);
  const counted = nodesOf(sorted);
  return {
    answer: {
      at: formatTime(now),
      totals: {
        nodes: counted,
        online: counted - away,
        current: all.filter(({ isCurrent, isPhone }) => isCurrent && !isPhone).length,
        // Only if no other report of the pair counts: the peer may report a path that works.
        cut: [...cut].filter((key) => !edges.has(key)).length,
        ...sums,
      },
      groups: shown,
      left_out: { groups: sorted.length - shown.length, nodes: counted - nodesOf(shown) },
      pairs: answers.sort((a, b) => byName(a.from, b.from) || byName(a.to, b.to)),
      broken: named(firstBroken),
      relayed: named(firstRelayed),
    },
    between: (from, to) => sumsBetween({ all, packed }, from, to),
  };
}

type Group = GroupPaths["groups"][number];

/** Adds each path to its groups, to the pair of its groups, and to the totals. */
function* sumEdges(
  all: readonly SummedNode[],
  edges: FoundEdges["edges"],
  groups: ReadonlyMap<string | null, Group>,
) {
  const pairs = new Map<string, GroupPair>();
  const totals = newPair(null, null);
  const packed = emptyPack(edges.size);
  const [firstBroken, firstRelayed]: [Edge[], Edge[]] = [[], []];
  let index = 0;
  for (const edge of edges.values()) {
    const [one, other] = [all[edge.a]?.group ?? null, all[edge.b]?.group ?? null];
    addToPair(pairOf(pairs, one, other), edge);
    addToPair(totals, edge);
    for (const name of one === other ? [one] : [one, other]) {
      const group = groups.get(name);
      if (group !== undefined) group.paths[kindName(edge.kind)] += 1;
    }
    if (edge.kind === broken && firstBroken.length < maxNamedPaths) firstBroken.push(edge);
    if (edge.kind === relayed && firstRelayed.length < maxNamedPaths) firstRelayed.push(edge);
    packed.put(index, edge);
    if (index++ % 200 === 0) yield;
  }
  return { pairs, totals, firstBroken, firstRelayed, packed };
}

/** Counts the nodes of each group by their states. */
function* groupsOf(
  all: readonly SummedNode[],
  worst: Uint8Array,
): Generator<undefined, Map<string | null, Group>> {
  const groups = new Map<string | null, Group>();
  for (const [index, node] of all.entries()) {
    if (index % 200 === 0) yield;
    const name = node.group;
    const empty = {
      name,
      nodes: 0,
      well: 0,
      relayed: 0,
      broken: 0,
      away: 0,
      hubs_away: 0,
      lighthouses_away: 0,
      hubs: 0,
      paths: noKinds(),
    };
    const group = groups.getOrInsert(name, empty);
    // Phones do not check in, so they have no state. Paths lead to them, so their group is there.
    if (node.isPhone) continue;
    group.nodes += 1;
    group[node.isOnline ? (states[worst[index] ?? 0] ?? "well") : "away"] += 1;
    // `hubs` counts routers and exits too, `hubs_away` does not: see the API.
    if (node.isConfigured) group.hubs += 1;
    if (node.isHub && !node.isOnline) group.hubs_away += 1;
    if (node.isLighthouse && !node.isOnline) group.lighthouses_away += 1;
  }
  return groups;
}

/** States of a node that is online, by the worst kind of path that it reports. */
const states = ["well", "relayed", "broken"] as const;

/** Compares groups by name. The one without a name comes last. */
function byName(a: string | null, b: string | null): number {
  if (a === b) return 0;
  return b === null || (a !== null && a < b) ? -1 : 1;
}

function worseGroup(a: Group, b: Group): number {
  const worse = [b.paths.broken - a.paths.broken, b.away - a.away, b.paths.relayed - a.paths.relayed];
  return worse.find((each) => each !== 0) ?? byName(a.name, b.name);
}

/** Two groups, or one group twice. `rtts`: ms. */
type GroupPair = { from: string | null; to: string | null; kinds: Kinds; rtts: number[] };
const newPair = (from: string | null, to: string | null): GroupPair => ({
  from,
  to,
  kinds: noKinds(),
  rtts: [],
});

function pairOf(pairs: Map<string, GroupPair>, one: string | null, other: string | null): GroupPair {
  const [from, to] = byName(one, other) <= 0 ? [one, other] : [other, one];
  // Names have no blanks.
  const key = `${from ?? ""} ${to ?? ""}`;
  return pairs.getOrInsertComputed(key, () => newPair(from, to));
}

function addToPair({ kinds, rtts }: GroupPair, { kind, rtt }: Edge): void {
  kinds[kindName(kind)] += 1;
  if (kind !== broken && !Number.isNaN(rtt)) rtts.push(rtt);
}

function answerOf({ from, to, kinds, rtts }: GroupPair) {
  const sorted = new Float64Array(rtts).sort();
  const quantile = (share: number) => sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? null;
  return { from, to, ...kinds, rtt_ms_median: quantile(0.5), rtt_ms_95: quantile(0.95) };
}

type NamedPath = BetweenGroups["worst"][number];

function namedPath(all: readonly SummedNode[], { a, b, kind, reporter, rtt }: Edge): NamedPath {
  // Of a broken path, the node that reports it is named first.
  const isReversed = kind === broken && reporter === b;
  const [node, peer] = isReversed ? [all[b], all[a]] : [all[a], all[b]];
  return {
    node: node?.id ?? 0,
    node_name: node?.name ?? "",
    group: node?.group ?? null,
    peer: peer?.id ?? 0,
    peer_name: peer?.name ?? "",
    peer_group: peer?.group ?? null,
    kind: kindName(kind),
    rtt_ms: kind === broken || Number.isNaN(rtt) ? null : rtt,
  };
}

type Packed = { put(index: number, edge: Edge): void; get(index: number): Edge; length: number };

/** Holds edges in typed arrays: they stay in memory as long as the sums. */
function emptyPack(length: number): Packed {
  /** Three for each edge: both ends, and the reporter. */
  const nodes = new Uint32Array(3 * length);
  const kinds = new Uint8Array(length);
  const rtts = new Float64Array(length);
  return {
    length,
    put(index, { a, b, kind, reporter, rtt }) {
      nodes.set([a, b, reporter], 3 * index);
      kinds[index] = kind;
      rtts[index] = rtt;
    },
    get: (index) => ({
      a: nodes[3 * index] ?? 0,
      b: nodes[3 * index + 1] ?? 0,
      reporter: nodes[3 * index + 2] ?? 0,
      kind: kinds[index] ?? broken,
      rtt: rtts[index] ?? Number.NaN,
    }),
  };
}

/** The upper bounds by which round trips are counted, in ms; null: none. */
const roundTripBounds = [1, 2, 5, 10, 20, 40, 80, 160, 320, 1000, null];

/** Broken paths are worst, then those with long round trips; paths without a measured one come last. */
function badness({ kind, rtt }: Edge): number {
  if (kind === broken) return Number.MAX_VALUE;
  return Number.isNaN(rtt) ? -1 : rtt;
}

/** The paths between two groups, or within one if they are the same. */
function sumsBetween(
  { all, packed }: { all: readonly SummedNode[]; packed: Packed },
  one: string | null,
  other: string | null,
): BetweenGroups {
  const [from, to] = byName(one, other) <= 0 ? [one, other] : [other, one];
  const pair = newPair(from, to);
  const edges: Edge[] = [];
  for (let index = 0; index < packed.length; index++) {
    const edge = packed.get(index);
    const [groupA, groupB] = [all[edge.a]?.group ?? null, all[edge.b]?.group ?? null];
    const isBetween = (groupA === from && groupB === to) || (groupA === to && groupB === from);
    if (!isBetween) continue;
    addToPair(pair, edge);
    edges.push(edge);
  }
  const worstPaths = edges.sort((a, b) => badness(b) - badness(a)).slice(0, maxNamedPaths);
  const round_trips = roundTripBounds.map((up_to_ms, index) => {
    const [above, upTo] = [roundTripBounds[index - 1] ?? -1, up_to_ms ?? Number.POSITIVE_INFINITY];
    return { up_to_ms, paths: pair.rtts.filter((rtt) => rtt > above && rtt <= upTo).length };
  });
  return { ...answerOf(pair), round_trips, worst: worstPaths.map((edge) => namedPath(all, edge)) };
}
