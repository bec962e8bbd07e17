// The values of an organization's rules of alarms: the initial ones, unless it has changed them. It stores changes as `RULE=VALUE`.

import { alarmRules, type AlarmKind } from "../../api/webhooks/alarms.ts";
import type { Picked } from "../store/table.ts";
import { organizations } from "../store/tables/organizations.ts";
import type { SilentNode } from "../nodes/contact/away-nodes.ts";

export const ruledPick = organizations.pick("id", "slug", "alarmRules", "notifyAwayMinutes");
export type Ruled = typeof ruledPick extends Picked<infer T> ? T : never;

/** Why an alarm ends whose rule was turned off. */
export const ruleIsOff = "The rule is off";

/** The value of a rule, in its unit; undefined: it is off. */
export function valueOf({ alarmRules: own }: Ruled, kind: AlarmKind): number | undefined {
  const value = numberOf(own, kind) ?? alarmRules[kind].initial ?? Number.POSITIVE_INFINITY;
  return Number.isFinite(value) ? value : undefined;
}

/** The organization's own value. Infinite: off. Undefined: it has not changed this rule. */
function numberOf(own: readonly string[], name: string): number | undefined {
  const value = own.findLast((each) => each.startsWith(`${name}=`))?.slice(name.length + 1);
  if (value === undefined) return undefined;
  if (value === "on") return 1;
  return value === "off" ? Number.POSITIVE_INFINITY : Number(value);
}

export type Role = "lighthouse" | "relay" | "router" | "node" | "desktop";
/** In the order of how much others need a node. */
export const roles: readonly Role[] = ["lighthouse", "relay", "router", "node", "desktop"];

type Roled = Pick<SilentNode, "isLighthouse" | "isRelay" | "subnets" | "exitGroups" | "mode">;

export function roleOf({ isLighthouse, isRelay, subnets, exitGroups, mode }: Roled): Role {
  if (isLighthouse) return "lighthouse";
  if (isRelay) return "relay";
  if (subnets.length > 0 || exitGroups.length > 0) return "router";
  return mode === "desktop" ? "desktop" : "node";
}

/**
 * After how long without contact a node is away, ms; undefined: never. Rules of its groups, the shortest of them, replace the rule
 * of its mode. Of a lighthouse, relay or router, the rule of that role counts as well, if it is shorter.
 */
export function awayAfterMs(org: Ruled, node: Roled & Pick<SilentNode, "groups" | "ownerGroups">) {
  const ofGroups = [...node.groups, ...node.ownerGroups].flatMap(
    (group) => numberOf(org.alarmRules, `node:${group}`) ?? [],
  );
  const role = roleOf(node);
  const ofMode = node.mode === "desktop" ? "desktop" : "node";
  // True for a lighthouse, relay or router.
  const hasOwnRole = role !== ofMode;
  // `notifyAwayMinutes` is the setting --notify-away. A rule `node=` or `desktop=` goes before it.
  const byMode = numberOf(org.alarmRules, ofMode) ?? org.notifyAwayMinutes ?? alarmRules[ofMode].initial;
  const usual = ofGroups.length > 0 ? Math.min(...ofGroups) : (byMode ?? Number.POSITIVE_INFINITY);
  const minutes = hasOwnRole ? Math.min(usual, valueOf(org, role) ?? Number.POSITIVE_INFINITY) : usual;
  return Number.isFinite(minutes) ? minutes * 60_000 : undefined;
}
