// Who did what an event tells, and whether it is about a given thing: pages of one node or rule show the events about it.

import type { Event as AuditEvent } from "../../api/events.ts";
import { isObject } from "../../base/is-object.ts";

/** E-mail addresses by user. */
export type Names = ReadonlyMap<number, string>;

/** "ada@example.org from 192.0.2.7", "node 7", "operator". */
export function actorOf({ actor }: Pick<AuditEvent, "actor">, names: Names): string {
  const email = actor.kind === "person" && actor.id !== null ? names.get(actor.id) : undefined;
  // Of an operator, the number is that of the user on the control plane's machine: 0 is root.
  const numbered = actor.id === null || actor.id === 0 ? actor.kind : `${actor.kind} ${actor.id}`;
  const who = email ?? numbered;
  return actor.ip === null ? who : `${who} from ${actor.ip}`;
}

/** Lists of things in the event of a policy. Events of former versions have no `rule_ids`. */
const policyLists: Readonly<Record<string, readonly string[]>> = {
  rule: ["rule_ids", "rules_created", "rules_deleted", "rules_described"],
  node: ["nodes"],
};

/**
 * Whether the event is about this one thing. A policy that is applied changes many rules and nodes in one event; an alias is
 * another name of a node.
 */
export function isAbout({ type, subject, before, after }: AuditEvent, wanted: string): boolean {
  if (subject === wanted) return true;
  const [kind, id] = [wanted.slice(0, wanted.indexOf("/")), Number(wanted.slice(wanted.indexOf("/") + 1))];
  if (kind === "node" && type.startsWith("name.")) return (after ?? before)?.["node"] === id;
  if (type !== "policy.applied" && type !== "policy.reverted") return false;
  return (policyLists[kind] ?? []).some((key) => {
    const list = after?.[key];
    return Array.isArray(list) && list.some((each) => (isObject(each) ? each["id"] : each) === id);
  });
}
