// The rules of alarms as an organization has them, and its changes of them. Pure.

import { alarmKinds, alarmRules } from "../../api/webhooks/alarms.ts";

/** `value`, `usual`: a number, "on" or "off". `place`: in the list, from 0. */
export type Rule = {
  place: number;
  name: string;
  words: string;
  unit: (typeof alarmRules)[keyof typeof alarmRules]["unit"];
  usual: string;
  value: string;
};

/** Of groups, `node:GROUP`. */
export const ofGroup = "node:";

/** All kinds, then the groups that have a rule. `own`: those that the organization has changed. `away`: its `notify_away_minutes`. */
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
      words: `A node of ${name.slice(ofGroup.length)} is away for so long`,
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
