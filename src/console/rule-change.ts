// Which rules a saved change has made and removed, as its event tells. Pure.

import { sentenceOf, toRule, type StoredRule } from "./access/rules.ts";
import { isRecord } from "./actor.ts";
import type { AuditEvent } from "./audit-event.ts";

/** Equal descriptions aside, a rule that was changed is one of `removed` and one of `added`. */
export type RuleChange = {
  added: readonly StoredRule[];
  removed: readonly StoredRule[];
  /** What else the change was about: "groups". */
  others: readonly string[];
};

const otherLists = [
  ["groups_created", "groups"],
  ["groups_deleted", "groups"],
  ["nodes", "machines"],
  ["members_added", "members of groups"],
  ["members_removed", "members of groups"],
  ["aliases_created", "names"],
  ["aliases_deleted", "names"],
] as const;

/** Undefined: it is not about rules. `now`: the rule as it is, as the event of an update tells only what differs. */
export function ruleChangeOf({ type, before, after }: AuditEvent, now?: StoredRule): RuleChange | undefined {
  if (type.startsWith("rule.")) {
    const whole = (part: AuditEvent["after"]) => rulesIn([part && { ...now, ...part }]);
    return { added: whole(after), removed: whole(before), others: [] };
  }
  if (type !== "policy.applied" && type !== "policy.reverted") return undefined;
  const described = listOf(after?.["rules_described"]).filter(isRecord);
  const [created, deleted] = [rulesIn(after?.["rules_created"]), rulesIn(after?.["rules_deleted"])];
  const added = [...created, ...rulesIn(described)];
  const removed = [
    ...deleted,
    ...rulesIn(described.map((rule) => ({ ...rule, description: rule["before"] }))),
  ];
  if (added.length + removed.length === 0) return undefined;
  const counts = isRecord(after?.["counts"]) ? after["counts"] : {};
  const isCut =
    Number(counts["rules_created"]) > created.length || Number(counts["rules_deleted"]) > deleted.length;
  const others = [
    ...otherLists.flatMap(([key, word]) => (listOf(after?.[key]).length > 0 ? [word] : [])),
    ...(after?.["tests"] === undefined ? [] : ["tests"]),
    ...(isCut ? ["rules beyond the first 500, which the event does not list"] : []),
  ];
  return { added, removed, others: [...new Set(others)] };
}

/** Names by number; those that are not known are numbers in sentences, too. */
type Known = { nodes: (id: number) => string | undefined; members: (id: number) => string | undefined };

/** What the event of a change of rules tells, in sentences. Undefined: it tells no whole rule. */
export function ruleSentencesOf(event: AuditEvent, { nodes, members }: Known) {
  const change = event.type === "rule.updated" ? undefined : ruleChangeOf(event);
  if (change === undefined) return undefined;
  const names = { get: (id: number) => nodes(id) ?? `node/${id}` };
  const emails = { get: (id: number) => members(id) ?? `user/${id}` };
  const groups = { get: (group: string) => group };
  const say = (stored: StoredRule) => {
    const rule = toRule(stored, names, emails, groups);
    return `${rule.id}: ${sentenceOf(rule)}${rule.description === "" ? "" : ` (${rule.description})`}`;
  };
  return { added: change.added.map(say), removed: change.removed.map(say) };
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
/** The control plane writes them as it shows them in `firewall_rules/`. */
const rulesIn = (value: unknown) =>
  listOf(value).filter(
    (each) => isRecord(each) && isRecord(each["peer"]) && isRecord(each["target"]),
  ) as unknown as StoredRule[];
