// The rules that a saved change has added and removed, from its event. Pure.

import type { Rule as StoredRule } from "../../api/rules.ts";
import { isObject } from "../../base/is-object.ts";
import type { Event as AuditEvent } from "../../api/events.ts";

/** A changed rule is in both `removed` and `added`. */
export type RuleChange = {
  added: readonly StoredRule[];
  removed: readonly StoredRule[];
  /** Other parts of the change: "groups". */
  others: readonly string[];
};

const otherLists = [
  ["groups_created", "groups"],
  ["groups_deleted", "groups"],
  ["nodes", "nodes"],
  ["members_added", "members of groups"],
  ["members_removed", "members of groups"],
  ["aliases_created", "names"],
  ["aliases_deleted", "names"],
] as const;

/**
 * Undefined if the event is not about rules. `now`: the present rule, because the event of an update contains only
 * the differences. The result is exact only if the rule was not changed again since.
 *
 * `after` of `policy.applied` and `policy.reverted`, whose lists have at most 500 items:
 *
 *   { counts: { rules_created: 1, rules_deleted: 0, rules_described: 1, nodes: 0 }, rules_created: [rule],
 *     rules_deleted: [], rules_described: [{ …rule, before: "its former description" }], groups_created: ["web"], tests: 3, … }
 */
export function ruleChangeOf({ type, before, after }: AuditEvent, now?: StoredRule): RuleChange | undefined {
  if (type.startsWith("rule.")) {
    const completed = (part: AuditEvent["after"]) => rulesIn([part && { ...now, ...part }]);
    const change = { added: completed(after), removed: completed(before), others: [] };
    return change.added.length + change.removed.length === 0 ? undefined : change;
  }
  if (type !== "policy.applied" && type !== "policy.reverted") return undefined;
  const described = listOf(after?.["rules_described"]).filter(isObject);
  const [created, deleted] = [rulesIn(after?.["rules_created"]), rulesIn(after?.["rules_deleted"])];
  const added = [...created, ...rulesIn(described)];
  const removed = [
    ...deleted,
    ...rulesIn(described.map((rule) => ({ ...rule, description: rule["before"] }))),
  ];
  if (added.length + removed.length === 0) return undefined;
  const others = [
    ...otherLists.flatMap(([key, word]) => (listOf(after?.[key]).length > 0 ? [word] : [])),
    ...(after?.["tests"] === undefined ? [] : ["tests"]),
    ...unlistedIn(after),
  ];
  return { added, removed, others: [...new Set(others)] };
}

/** Words for what the lists of an event lack; none if they are whole. Events before `counts` had descriptions do not tell. */
export function unlistedIn(after: AuditEvent["after"]): readonly string[] {
  const counts = isObject(after?.["counts"]) ? after["counts"] : {};
  const isCut = Object.entries(counts).some(([key, count]) => Number(count) > listOf(after?.[key]).length);
  return isCut ? ["items beyond the first 500, which the event does not list"] : [];
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
/** The control plane writes them as it shows them in `firewall_rules/`. */
const rulesIn = (value: unknown) => listOf(value).filter(isWhole) as unknown as StoredRule[];
/** Not whole: the event of a rule that was changed by its number contains only the fields that differ. */
const isWhole = (value: unknown) =>
  isObject(value) &&
  isObject(value["peer"]) &&
  isObject(value["target"]) &&
  "direction" in value &&
  "protocol" in value;
