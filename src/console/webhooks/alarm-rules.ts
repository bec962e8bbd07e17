// Alarms in their order, and the rules that raise them, as an organization has them and changes them. Pure.

import { alarmKinds, alarmRules, type Alarm } from "../../api/webhooks/alarms.ts";
import { isRed } from "../needs/need-kinds.ts";

type Sorted = Pick<Alarm, "kind" | "ended_at">;
/** Open alarms that are red stand above the others, which keep their order. `cut`: how many paths only a relay that is away carries (`isRed`). */
export const worstFirst = <A extends Sorted>(alarms: readonly A[], cut: number | undefined): A[] => {
  const isWorst = ({ kind, ended_at }: Sorted) => Number(ended_at === null && isRed(kind, cut));
  return alarms.toSorted((a, b) => isWorst(b) - isWorst(a));
};

/** An alarm's text on one line, without its first sentence "Since …", which has a column. */
export const meaningOf = ({ text }: Pick<Alarm, "text">): string =>
  text.replace(/^Since [^.]*\.\s*/, "").replaceAll("\n", " · ");

/** `value`, `usual`: a number in the unit, "on" or "off"; `usual` is "" for a group. `place`: in the list, from 0. */
export type Rule = {
  place: number;
  name: string;
  words: string;
  unit: (typeof alarmRules)[keyof typeof alarmRules]["unit"];
  usual: string;
  value: string;
};

/** Rules for groups are named `node:GROUP`. */
export const ofGroup = "node:";
export const groupWords = (group: string) => `A node of ${group} has been away for this time`;

/**
 * All kinds, then the groups that have a rule. `own`: the rules that the organization has changed, such as `node=30`. `away`: its
 * `notify_away_minutes`.
 */
export function rulesOf(own: readonly string[], away: number | null): Rule[] {
  const values = new Map(own.map((each) => each.split("=") as [string, string]));
  const kinds = alarmKinds.map((name) => {
    const { unit, initial, words } = alarmRules[name];
    // As the control plane does (src/server/alarms/alarm-rules.ts).
    const number = (name === "node" || name === "desktop" ? away : null) ?? initial;
    const on = unit === "switch" ? "on" : `${number}`;
    return { name, unit, words, usual: number === null ? "off" : on };
  });
  const groups = [...values.keys()]
    .filter((name) => name.startsWith(ofGroup))
    .map((name) => ({
      name,
      unit: "minutes" as const,
      words: groupWords(name.slice(ofGroup.length)),
      usual: "",
    }));
  return [...kinds, ...groups].map((rule, place) => ({
    ...rule,
    place,
    value: values.get(rule.name) ?? rule.usual,
  }));
}

/** "3 minutes", "on", "off". */
export const valueWords = ({ value, unit }: Rule): string =>
  value === "on" || value === "off" ? value : `${value} ${unit}`;

/** The changed rules with another value for these; the empty text brings the usual one back. */
export const withValue = (own: readonly string[], names: readonly string[], value: string): string[] => [
  ...own.filter((each) => !names.includes(each.replace(/=.*/, ""))),
  ...(value === "" ? [] : names.map((name) => `${name}=${value}`)),
];
