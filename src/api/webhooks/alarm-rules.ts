// The rules of alarms that an organization changes, as texts: `RULE=VALUE`, such as node=30, node:laptops=60 or backup=off. The
// usual rules are in alarms.ts.

import * as v from "valibot";
import { foreignText } from "../../base/text.ts";
import { alarmKinds, alarmRules } from "./alarms.ts";

/** The name is a kind of alarm, or `node:GROUP`: nodes with the group, in any mode. */
const ruleText = new RegExp(`^(${alarmKinds.join("|")}|node:[^=\\s]{1,200})=(on|off|[1-9]\\d{0,4})$`);
/** The largest number of a rule of any unit. In minutes it is a week: servers remember for eight days when none of them ran. */
const largest = 7 * 1440;
/** The smallest number. Nodes check in once a minute, so one minute would be too short. */
const leastOf = (unit: string): number => (unit === "minutes" ? 2 : 1);

const nameOf = (rule: string) => rule.replace(/=.*/s, "");

function isRule(text: string): boolean {
  const [, name = "", value = ""] = ruleText.exec(text) ?? [];
  if (name === "") return false;
  if (value === "off") return true;
  const kind = alarmKinds.find((each) => each === name);
  // `node:GROUP` is no kind.
  const unit = kind === undefined ? "minutes" : alarmRules[kind].unit;
  if (unit === "switch") return value === "on";
  return value !== "on" && Number(value) >= leastOf(unit) && Number(value) <= largest;
}

/** What the rules take, for a refusal: `backup and ca: 1 to 10080 days; …`. */
function describeValues(): string {
  const kindsByUnit = Map.groupBy(alarmKinds, (kind) => alarmRules[kind].unit);
  return [...kindsByUnit]
    .map(([unit, kinds]) => {
      const names: string[] = unit === "minutes" ? [...kinds, "node:GROUP"] : kinds;
      const last = names.at(-1) ?? "";
      const list = names.length === 1 ? last : `${names.slice(0, -1).join(", ")} and ${last}`;
      return unit === "switch" ? `${list}: on` : `${list}: ${leastOf(unit)} to ${largest} ${unit}`;
    })
    .join("; ");
}

/** The name of a rule that is there twice. */
function repeatedName(rules: readonly string[]): string | undefined {
  const names = rules.map(nameOf);
  return names.find((name, index) => names.indexOf(name) !== index);
}

export const AlarmRules = v.pipe(
  v.array(
    v.pipe(
      foreignText(256),
      v.check(
        isRule,
        `Enter RULE=VALUE, such as node=30 or backup=off. Values besides off: ${describeValues()}.`,
      ),
    ),
  ),
  v.maxLength(64),
  v.check(
    (rules) => repeatedName(rules) === undefined,
    ({ input }) => `${repeatedName(input)} has two values. Give each rule once.`,
  ),
);

/** The groups that rules name. */
export const groupsOfRules = (rules: readonly string[]): string[] =>
  rules.map(nameOf).flatMap((name) => (name.startsWith("node:") ? [name.slice("node:".length)] : []));
