// Nodes and paths summed by group, for the map of many nodes and for the history of paths. Pure.

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
  /** It stands in the configurations of other nodes. */
  isConfigured: boolean;
  /** A lighthouse or a relay. */
  isHub: boolean;
};

export type FoundNodes = {
  all: SummedNode[];
  byId: Map<number, number>;
  byAddress: Map<string, number>;
  /** Names and addresses of nodes that are away: nodes report their relays by the one or the other. */
  away: Set<string>;
};

/** A path has its kind as a place in this list: the higher, the worse. */
export const kindNames = ["direct", "relayed", "broken"] as const;
export const relayed = kindNames.indexOf("relayed");
export const broken = kindNames.indexOf("broken");

/** A pair of nodes by their places in `FoundNodes.all`, the smaller one first. `rtt` in ms; NaN without one. */
type Edge = { a: number; b: number; kind: number; rtt: number };

/** By pair; and by place of a node, the worst kind that it reports itself. */
export type FoundEdges = {
  edges: Map<number, Edge>;
  worst: Uint8Array;
  /** Pairs whose path goes over relays that are all away. */
  cut: Set<number>;
};

type Kinds = { direct: number; relayed: number; broken: number };
const noKinds = (): Kinds => ({ direct: 0, relayed: 0, broken: 0 });
const nameOf = (kind: number) => kindNames[kind] ?? "broken";

/** Works in slices. `now`: the time of the answer, ms. */
export function* sumsOf(
  { all }: FoundNodes,
  { edges, worst, cut }: FoundEdges,
  now: number,
): Generator<undefined, Sums> {
  const groups = yield* groupsOf(all, worst);
  const { pairs, totals, first, packed } = yield* sumEdges(all, edges, groups);
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
  const named = (some: readonly Edge[]) => some.map((edge) => namedPath(all, worst, edge));
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
        cut: [...cut].filter((key) => !edges.has(key)).length,
        ...sums,
      },
      groups: shown,
      left_out: { groups: sorted.length - shown.length, nodes: counted - nodesOf(shown) },
      pairs: answers.sort((a, b) => byName(a.from, b.from) || byName(a.to, b.to)),
      broken: named(first.broken),
      relayed: named(first.relayed),
    },
    between: (from, to) => sumsBetween({ all, worst, packed }, from, to),
  };
}

type Group = GroupPaths["groups"][number];

/** Adds each path to its groups, to the pair of its groups, and to the totals. `first`: the first paths of a kind. */
function* sumEdges(
  all: readonly SummedNode[],
  edges: FoundEdges["edges"],
  groups: ReadonlyMap<string | null, Group>,
) {
  const [pairs, totals] = [new Map<string, Pair>(), newPair(null, null)];
  const packed = emptyPack(edges.size);
  const first: Record<(typeof kindNames)[number], Edge[]> = { direct: [], relayed: [], broken: [] };
  let at = 0;
  for (const edge of edges.values()) {
    const [one, other] = [all[edge.a]?.group ?? null, all[edge.b]?.group ?? null];
    addToPair(pairOf(pairs, one, other), edge);
    addToPair(totals, edge);
    for (const name of one === other ? [one] : [one, other]) {
      const group = groups.get(name);
      if (group !== undefined) group.paths[nameOf(edge.kind)] += 1;
    }
    const ofKind = first[nameOf(edge.kind)];
    if (ofKind.length < maxNamedPaths) ofKind.push(edge);
    packed.put(at, edge);
    if (at++ % 200 === 0) yield;
  }
  return { pairs, totals, first, packed };
}

function* groupsOf(
  all: readonly SummedNode[],
  worst: Uint8Array,
): Generator<undefined, Map<string | null, Group>> {
  const groups = new Map<string | null, Group>();
  for (const [at, node] of all.entries()) {
    if (at % 200 === 0) yield;
    const name = node.group;
    const empty = {
      name,
      nodes: 0,
      well: 0,
      relayed: 0,
      broken: 0,
      away: 0,
      hubs_away: 0,
      hubs: 0,
      paths: noKinds(),
    };
    const group = groups.get(name) ?? empty;
    groups.set(name, group);
    if (node.isPhone) continue;
    group.nodes += 1;
    group[node.isOnline ? (states[worst[at] ?? 0] ?? "well") : "away"] += 1;
    if (node.isConfigured) group.hubs += 1;
    if (node.isHub && !node.isOnline) group.hubs_away += 1;
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

function addToPair({ kinds, rtts }: Pair, { kind, rtt }: Edge): void {
  kinds[nameOf(kind)] += 1;
  if (kind !== broken && !Number.isNaN(rtt)) rtts.push(rtt);
}

function answerOf({ from, to, kinds, rtts }: Pair) {
  const sorted = new Float64Array(rtts).sort();
  const at = (share: number) => sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? null;
  return { from, to, ...kinds, rtt_ms_median: at(0.5), rtt_ms_95: at(0.95) };
}

type NamedPath = BetweenGroups["worst"][number];

function namedPath(all: readonly SummedNode[], reported: Uint8Array, { a, b, kind, rtt }: Edge): NamedPath {
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

/** The upper bounds by which round trips are counted, in ms; null: none. */
const roundTripBounds = [1, 2, 5, 10, 20, 40, 80, 160, 320, 1000, null];

/** Broken paths are worst, then those with long round trips; paths without a measured one come last. */
function badness({ kind, rtt }: Edge): number {
  if (kind === broken) return Number.MAX_VALUE;
  return Number.isNaN(rtt) ? -1 : rtt;
}

function sumsBetween(
  { all, worst: reported, packed }: { all: readonly SummedNode[]; worst: Uint8Array; packed: Packed },
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
    addToPair(pair, edge);
    edges.push(edge);
  }
  const worst = edges.sort((a, b) => badness(b) - badness(a)).slice(0, maxNamedPaths);
  const round_trips = roundTripBounds.map((up_to_ms, at) => {
    const [above, upTo] = [roundTripBounds[at - 1] ?? -1, up_to_ms ?? Number.POSITIVE_INFINITY];
    return { up_to_ms, paths: pair.rtts.filter((rtt) => rtt > above && rtt <= upTo).length };
  });
  return { ...answerOf(pair), round_trips, worst: worst.map((edge) => namedPath(all, reported, edge)) };
}
