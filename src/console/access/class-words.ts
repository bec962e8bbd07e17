// Kinds of nodes as a user knows them: by their groups where these say exactly which nodes are meant. Pure.

import { shownGroups } from "../../protocol/shown-groups.ts";
import type { Named } from "./rules.ts";
import { numberText, plural } from "../words/numbers.ts";

/** Nodes that all rules treat alike: the groups of them that rules name, the first names, and how many. */
export type Class = {
  groups: readonly string[];
  nodes: readonly string[];
  count: number;
  /** "networks": the class is networks behind nodes of these groups and names, and `count` counts them. */
  are?: "networks" | undefined;
};

type Effect = { gains: readonly string[]; loses: readonly string[] };

/** Sort: rows that only gain first, rows that only lose last. */
export const gainersFirst = <T extends Effect>(effects: readonly T[]): readonly T[] => {
  const rank = ({ gains, loses }: Effect) => Number(loses.length > 0) - Number(gains.length > 0);
  return effects.toSorted((one, other) => rank(one) - rank(other));
};

/** The group of a user's nodes, or of a provider's group: rules name it, and it is not among the groups of nodes. */
const isOfPeople = (group: string) => /^(user|idp):/.test(group);

/** `nodes`: how many have these groups. */
type Combination = { groups: readonly string[]; nodes: number };
/** By the list of nodes, which is another array after each change. */
const knownCombinations = new WeakMap<readonly Named[], readonly Combination[]>();

/** The lists of groups that nodes have, and how many have each: ten thousand nodes share a few lists. */
function combinationsOf(nodes: readonly Named[]): readonly Combination[] {
  const known = knownCombinations.get(nodes);
  if (known !== undefined) return known;
  // Nodes with equal groups share one array (nodes/listed-nodes.ts). Where groups come from the owner, each node counts alone.
  const byArray = new Map<readonly string[], Combination>();
  for (const node of nodes) {
    const key = node.owner_groups === undefined ? node.groups : [];
    const found = byArray.get(key);
    if (found === undefined) byArray.set(key, { groups: shownGroups(node), nodes: 1 });
    else found.nodes += 1;
  }
  const combinations = [...byArray.values()];
  knownCombinations.set(nodes, combinations);
  return combinations;
}

/** Words before and after the groups. `isExact`: the class has all nodes of these groups and no others. */
type ClassParts = { before: string; groups: readonly string[]; after: string; isExact: boolean };

/** A class in words. `all`: all nodes of the organization, to find groups that have exactly these nodes. */
export function classParts({ groups, nodes, count, are }: Class, all: readonly Named[]): ClassParts {
  const names = nodes.join(", ");
  const plain = (before: string): ClassParts => ({ before, groups: [], after: "", isExact: false });
  // The first that fits is the most exact.
  if (count <= nodes.length) return plain(names);
  const own = groups.filter((group) => !isOfPeople(group));
  if (are !== undefined) {
    const inGroups = own.length === 0 ? "" : ` in ${own.join(" and ")}`;
    return plain(`${numberText(count)} networks behind nodes${inGroups} (${names}, …)`);
  }
  if (count === all.length) return plain(`all ${numberText(count)} nodes`);
  /** How many nodes are in all of these groups. */
  const nodesIn = (wanted: readonly string[]) => {
    let sum = 0;
    for (const combination of combinationsOf(all))
      if (wanted.every((group) => combination.groups.includes(group))) sum += combination.nodes;
    return sum;
  };
  const exact = [...own.map((group) => [group]), own].find((each) => nodesIn(each) === count);
  if (exact !== undefined)
    return { before: `${numberText(count)} nodes in `, groups: exact, after: "", isExact: true };
  // A node may have joined or left since the list was read.
  if (own.length === 0 || nodesIn(own) < count)
    return plain(`${names} and ${numberText(count - nodes.length)} more`);
  const before = `${numberText(count)} of ${numberText(nodesIn(own))} nodes in `;
  return { before, groups: own, after: ` (${names}, …)`, isExact: false };
}

/** "web-1, web-2", "64 nodes in web", "12 of 64 nodes in web (web-1, web-2, web-3, …)", "all 300 nodes". */
export function classWords(one: Class, nodes: readonly Named[]): string {
  const { before, groups, after } = classParts(one, nodes);
  return before + groups.join(" and ") + after;
}

/** Texts of the control plane write tcp/5432; the sentences of this page write tcp 5432. */
export const spaced = (text: string): string => text.replace(/\b(tcp|udp)\//g, "$1 ");

/** One gains, several gain. */
export const verbFor = (count: number, verb: string): string => (count === 1 ? `${verb}s` : verb);

/** The access that a class gains or loses. */
export const accessWords = (count: number, verb: "gain" | "lose", what: readonly string[]): string =>
  `${verbFor(count, verb)} ${spaced(what.join(", "))}`;

type Pairs = Effect & { pairs: number; from: Class; to: Class };
type Access = { classes: readonly Pairs[]; classes_left_out: number };

/** How many pairs gain, or lose. Of many classes, the control plane leaves out those of the fewest pairs. */
function pairsOf({ classes, classes_left_out }: Access, kind: "gains" | "loses") {
  const count = classes.reduce((sum, each) => sum + (each[kind].length > 0 ? each.pairs : 0), 0);
  const isWide = classes.some(({ from, to }) => (from.are ?? to.are) !== undefined);
  const what = isWide ? "nodes, and of networks behind them," : "nodes";
  const words = `${plural(count, "pair")} of ${what}`;
  return { count, words: classes_left_out > 0 ? `at least ${words}` : words };
}

/** "768 pairs of nodes gain access, 1 loses it". */
export function pairsWords(access: Access): string {
  const [gaining, losing] = [pairsOf(access, "gains"), pairsOf(access, "loses")];
  return `${gaining.words} ${verbFor(gaining.count, "gain")} access, ${numberText(losing.count)} ${verbFor(losing.count, "lose")} it`;
}

/** The same for one of both, where there is little room: "768 pairs gain". Undefined: none does. */
export function shortPairs(access: Access, kind: "gain" | "lose"): string | undefined {
  const { count } = pairsOf(access, `${kind}s`);
  if (count === 0) return undefined;
  const pairs = `${plural(count, "pair")} ${verbFor(count, kind)}`;
  return access.classes_left_out > 0 ? `At least ${pairs}` : pairs;
}

/** "2 more kinds of nodes". */
export const moreKinds = (count: number): string => `${plural(count, "more kind")} of nodes`;

/**
 * The listed classes that gain, or lose: the first of them, and the number of the others. Classes that the control plane left out
 * do not count, because they may be of the other kind.
 */
export function firstOf<T extends Effect>(classes: readonly T[], kind: "gain" | "lose", most: number) {
  const all = classes.filter((each) => each[`${kind}s`].length > 0);
  return { rows: all.slice(0, most), more: Math.max(0, all.length - most) };
}

/** Instead of `shortPairs`. */
export const noneText = (
  { classes_left_out }: Pick<Access, "classes_left_out">,
  kind: "gain" | "lose",
): string => `No ${classes_left_out > 0 ? "listed " : ""}node ${kind}s access`;

/** "2 of 5 tests fail". */
export const failText = (failing: number, all: number): string =>
  all === 1 ? "The test fails" : `${failing} of ${all} tests ${verbFor(failing, "fail")}`;
