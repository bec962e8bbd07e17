// Kinds of machines as a user knows them: by their groups where these say exactly which machines are meant. Pure.

import { shownGroups } from "../../protocol/owner-group.ts";
import type { Named } from "./rules.ts";

/**
 * Machines that all rules treat alike: the groups of them that rules name, the first names, and how many. Or networks behind
 * such machines.
 */
export type Class = {
  groups: readonly string[];
  nodes: readonly string[];
  count: number;
  are?: "networks" | undefined;
};

/** "39,932" */
export const numberText = (value: number): string => value.toLocaleString("en");

type Effect = { gains: readonly string[]; loses: readonly string[] };

/** Sort: rows that only gain first, rows that only lose last. */
export const gainersFirst = <T extends Effect>(effects: readonly T[]): readonly T[] => {
  const rank = ({ gains, loses }: Effect) => Number(loses.length > 0) - Number(gains.length > 0);
  return effects.toSorted((one, other) => rank(one) - rank(other));
};

/** Groups that rules name but no machine shows. */
const isOfPeople = (group: string) => /^(user|idp):/.test(group);

/** "web-1, web-2", "64 machines in web", "12 of 64 machines in web (web-1, web-2, web-3, …)", "all 300 machines". */
export function classWords({ groups, nodes, count, are }: Class, machines: readonly Named[]): string {
  const names = nodes.join(", ");
  if (count <= nodes.length) return names;
  const own = groups.filter((group) => !isOfPeople(group));
  if (are !== undefined) {
    const inGroups = own.length === 0 ? "" : ` in ${own.join(" and ")}`;
    return `${numberText(count)} networks behind machines${inGroups} (${names}, …)`;
  }
  if (count === machines.length) return `all ${numberText(count)} machines`;
  const within = (wanted: readonly string[]) =>
    machines.filter((machine) => {
      const has = shownGroups(machine);
      return wanted.every((group) => has.includes(group));
    }).length;
  const exact = [...own.map((group) => [group]), own].find((each) => within(each) === count);
  if (exact !== undefined) return `${numberText(count)} machines in ${exact.join(" and ")}`;
  // A machine may have joined or left since the list was read.
  if (own.length === 0 || within(own) < count) return `${names} and ${numberText(count - nodes.length)} more`;
  return `${numberText(count)} of ${numberText(within(own))} machines in ${own.join(" and ")} (${names}, …)`;
}

/** Texts of the control plane write tcp/5432; the sentences of this page write tcp 5432. */
export const spaced = (text: string): string => text.replace(/\b(tcp|udp)\//g, "$1 ");

/** One gains, several gain. */
const verbFor = (count: number, verb: string): string => (count === 1 ? `${verb}s` : verb);

/** The access that a class gains or loses. */
export const accessWords = (count: number, verb: "gain" | "lose", what: readonly string[]): string =>
  `${verbFor(count, verb)} ${spaced(what.join(", "))}`;

type Pairs = Effect & { pairs: number; from: Class; to: Class };
type Access = { classes: readonly Pairs[]; classes_left_out: number };

/** "768 pairs of machines gain access, 1 loses it". Of many classes, the control plane leaves out those of the fewest pairs. */
export function pairsWords({ classes, classes_left_out }: Access): string {
  const [gaining = 0, losing = 0] = (["gains", "loses"] as const).map((kind) =>
    classes.reduce((sum, each) => sum + (each[kind].length > 0 ? each.pairs : 0), 0),
  );
  const isWide = classes.some(({ from, to }) => (from.are ?? to.are) !== undefined);
  const what = isWide ? "machines, and of networks behind them," : "machines";
  const pairs = `${numberText(gaining)} ${gaining === 1 ? "pair" : "pairs"} of ${what} ${verbFor(gaining, "gain")}`;
  return `${classes_left_out > 0 ? "at least " : ""}${pairs} access, ${numberText(losing)} ${verbFor(losing, "lose")} it`;
}

/** "2 of 5 tests fail". */
export const failText = (failing: number, all: number): string =>
  all === 1 ? "The test fails" : `${failing} of ${all} tests ${verbFor(failing, "fail")}`;
