// Kinds of machines as a user knows them: by their groups where these say exactly which machines are meant. Pure.

import { shownGroups } from "../../owner-group.ts";
import type { Named } from "./rules.ts";

/** Machines that all rules treat alike: the groups of them that rules name, the first names, and how many. */
export type Class = { groups: readonly string[]; nodes: readonly string[]; count: number };

/** "39,932" */
export const numberText = (value: number): string => value.toLocaleString("en");

type Effect = { gains: readonly string[]; loses: readonly string[] };

/** Who only gains first, who only loses last. */
export const gainersFirst = <T extends Effect>(effects: readonly T[]): readonly T[] => {
  const rank = ({ gains, loses }: Effect) => Number(loses.length > 0) - Number(gains.length > 0);
  return effects.toSorted((one, other) => rank(one) - rank(other));
};

/** Rules name these, and no machine shows that it is in one. */
const isOfPeople = (group: string) => /^(user|idp):/.test(group);

/** "web-1, web-2", "64 machines in web", "12 of 64 machines in web (web-1, web-2, web-3, …)", "all 300 machines". */
export function classWords({ groups, nodes, count }: Class, machines: readonly Named[]): string {
  const names = nodes.join(", ");
  if (count <= nodes.length) return names;
  if (count === machines.length) return `all ${numberText(count)} machines`;
  const own = groups.filter((group) => !isOfPeople(group));
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

/** What a class gains or loses: one machine gains, several gain. */
export const gainWords = (count: number, what: readonly string[]): string =>
  `${count === 1 ? "gains" : "gain"} ${what.join(", ")}`;
export const loseWords = (count: number, what: readonly string[]): string =>
  `${count === 1 ? "loses" : "lose"} ${what.join(", ")}`;
