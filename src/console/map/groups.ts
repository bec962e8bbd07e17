// What the map and the small network of Overview know of groups and of the paths between them.

import type { GroupPaths } from "../../api/paths/paths.ts";
import { isRed } from "../needs/need-kinds.ts";
import { plural, msWords } from "../words/numbers.ts";

export type Group = GroupPaths["groups"][number];
export type Pair = GroupPaths["pairs"][number];
export type NamedPath = GroupPaths["broken"][number];
type Name = Group["name"];

/** The picture has at most so many groups; of more, the worst. */
export const maxDrawn = 12;

/** As pages name a group. Null: the nodes without one. */
export const groupWord = (name: Name): string => name ?? "no group";
/** As the page's address names a group: "" for the nodes without one. */
export const groupKey = (name: Name): string => name ?? "";

export const pathsIn = ({
  direct,
  relayed,
  broken,
}: Omit<Pair, "from" | "to" | "rtt_ms_median" | "rtt_ms_95">) => direct + relayed + broken;
export const onlineIn = ({ nodes, away }: Group): number => nodes - away;

/**
 * How many nodes of a group are drawn as which kind (group-boxes.ts). Of those that are away, `need` are those that the list shows in
 * red: lighthouses, and relays while a path has no other way. `cut`: how many paths have none.
 */
export function kindsOf({ well, relayed, broken, away, hubs_away, lighthouses_away }: Group, cut: number) {
  const red = isRed("relay", cut) ? hubs_away : lighthouses_away;
  return { need: broken + red, part: relayed, on: well, off: away - red };
}

/** Groups that have nodes besides phones. */
export const peopled = (groups: readonly Group[]): Group[] => groups.filter(({ nodes }) => nodes > 0);

/**
 * The group for the middle: at least half of its nodes are lighthouses, relays or routers (`hubs`), and it has the most of them.
 */
export function hubOf(groups: readonly Group[]): Group | undefined {
  const candidates = peopled(groups).filter(({ nodes, hubs }) => hubs > 0 && 2 * hubs >= nodes);
  return candidates.toSorted((a, b) => b.hubs - a.hubs || byName(a, b))[0];
}

/** Nodes without a group come last. */
function byName(a: Group, b: Group): number {
  if (a.name === null || b.name === null) return a.name === null ? 1 : -1;
  return Number(a.name > b.name) - Number(a.name < b.name);
}

/** The groups that a picture has, by name: the hub, and of the others the worst, as the control plane sorts them. */
export function drawnOf(
  groups: readonly Group[],
  most = maxDrawn,
): { hub: Group | undefined; ring: Group[] } {
  const all = peopled(groups);
  const hub = all.length > 1 ? hubOf(all) : undefined;
  const ring = all.filter((group) => group !== hub).slice(0, hub === undefined ? most : most - 1);
  return { hub, ring: ring.toSorted(byName) };
}

/** Gives a function that finds the pair of two groups, in any order. */
export function pairFinder(pairs: readonly Pair[]): (a: Name, b: Name) => Pair | undefined {
  const byNames = new Map(pairs.map((pair) => [pairKey(pair.from, pair.to), pair]));
  return (a, b) => byNames.get(pairKey(a, b)) ?? byNames.get(pairKey(b, a));
}

/** As the page's address names a pair. Names of groups have no blanks. */
export const pairKey = (from: Name, to: Name): string => `${groupKey(from)} ${groupKey(to)}`;

/** Whether the pair is the one that the address names, in any order. */
export const isPair = ({ from, to }: Pick<Pair, "from" | "to">, selected: string): boolean =>
  pairKey(from, to) === selected || pairKey(to, from) === selected;

export const pairName = ({ from, to }: Pick<Pair, "from" | "to">): string =>
  `${groupWord(from)} – ${groupWord(to)}`;

/** "staff – web: 116 paths, median 41 ms, 9 relayed, 1 broken". */
export function pairWords(pair: Pair): string {
  const { rtt_ms_median: median, relayed, broken } = pair;
  return [
    `${pairName(pair)}: ${plural(pathsIn(pair), "path")}`,
    ...(median === null ? [] : [`median ${msWords(median)} ms`]),
    ...(relayed === 0 ? [] : [`${relayed} relayed`]),
    ...(broken === 0 ? [] : [`${broken} broken`]),
  ].join(", ");
}
