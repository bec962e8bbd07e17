// The actor and the subject of an event.

import type { Event as AuditEvent } from "../api/events.ts";

/** E-mail addresses by user. */
export type Names = ReadonlyMap<number, string>;

export function actorOf({ actor }: Pick<AuditEvent, "actor">, names: Names): string {
  const email = actor.kind === "person" && actor.id !== null ? names.get(actor.id) : undefined;
  const numbered = actor.id === null || actor.id === 0 ? actor.kind : `${actor.kind} ${actor.id}`;
  const who = email ?? numbered;
  return actor.ip === null ? who : `${who} from ${actor.ip}`;
}

export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Whether the event is about this one thing. A policy that is applied changes many rules and nodes in one event; an alias is
 * another name of a node.
 */
export function isAbout({ type, subject, before, after }: AuditEvent, wanted: string): boolean {
  if (subject === wanted) return true;
  const [kind, id] = [wanted.slice(0, wanted.indexOf("/")), Number(wanted.slice(wanted.indexOf("/") + 1))];
  if (kind === "node" && type.startsWith("name.")) return (after ?? before)?.["node"] === id;
  if (type !== "policy.applied" && type !== "policy.reverted") return false;
  const keys = kind === "rule" ? ["rule_ids", ...ruleLists] : kind === "node" ? ["nodes"] : [];
  return keys.some((key) => {
    const list = after?.[key];
    return Array.isArray(list) && list.some((each) => (isRecord(each) ? each["id"] : each) === id);
  });
}
/** Events of former versions have these lists without `rule_ids`. */
const ruleLists = ["rules_created", "rules_deleted", "rules_described"];
