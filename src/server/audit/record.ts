// The audit log: who did what to what, from where. Append-only and chained by hash within each organization, written
// in the same transaction as the change itself. Reads nothing but the end of the chain.

import { hash } from "node:crypto";
import type { Call, Caller } from "../http/route.ts";
import { textOf, type Transaction } from "../store/database.ts";

/** Every name that is ever recorded: what webhooks may ask for. */
export const eventTypes = [
  "blocklist.filling",
  "ca.expiring",
  "ca.exported",
  "ca.imported",
  "ca.rotated",
  "certificate.expiring",
  "certificate.issued",
  "certificate.renewed",
  "group.created",
  "group.deleted",
  "group.updated",
  "member.created",
  "member.deleted",
  "member.invited",
  "member.updated",
  "node.created",
  "node.registered",
  "node.restored",
  "node.revoked",
  "node.updated",
  "organization.created",
  "organization.deleted",
  "organization.updated",
  "rule.created",
  "rule.deleted",
  "rule.updated",
  "security.login_failed",
  "server.restored",
  "token.created",
  "token.revoked",
  "token.used",
  "user.created",
  "user.disabled",
  "user.enabled",
  "user.password_changed",
  "webhook.created",
  "webhook.deleted",
  "webhook.updated",
] as const;
export type EventType = (typeof eventTypes)[number];

export type Actor = {
  kind: "person" | "service" | "node" | "operator" | "server" | "nobody";
  id: number | null;
  ip: string | null;
};

export type AuditEvent = {
  orgId: number | null;
  at: number;
  type: EventType;
  actor: Actor;
  /** `node/17`, `member/a@example.org`. */
  subject: string;
  /** Never with a secret in it. */
  before?: Record<string, unknown>;
  after?: Record<string, unknown>;
};

/** The person at the machine, by `admin`. */
export const operator: Actor = { kind: "operator", id: null, ip: null };

/** What the server does by itself. */
export const ourselves: Actor = { kind: "server", id: null, ip: null };

export function actorOf(call: Pick<Call, "caller" | "address">): Actor {
  const { caller } = call;
  return { kind: caller.kind === "none" ? "nobody" : caller.kind, id: callerId(caller), ip: call.address };
}

function callerId(caller: Caller): number | null {
  if (caller.kind === "person") return caller.userId;
  if (caller.kind === "service") return caller.tokenId;
  return caller.kind === "node" ? caller.nodeId : null;
}

/** `person/7`, `service/3`, `operator/`: how columns name who did something. */
export function principal({ kind, id }: Pick<Actor, "kind" | "id">): string {
  return `${kind}/${id ?? ""}`;
}

/** An event as it is stored: `actor`, `before` and `after` are JSON. */
export type StoredEvent = {
  at: number;
  type: string;
  actor: string;
  subject: string;
  before: string | null;
  after: string | null;
};

/**
 * What the hash of an event covers, after the hash of the one before it: its JSON exactly as the API answers it,
 * without `id` and `hash`, so that whoever keeps the answers can check the chain.
 */
export function eventText({ at, type, actor, subject, before, after }: StoredEvent): string {
  const head = `{"at":${JSON.stringify(eventTime(at))},"type":${JSON.stringify(type)},"actor":${actor}`;
  const changed = `"before":${before ?? "null"},"after":${after ?? "null"}`;
  return `${head},"subject":${JSON.stringify(subject)},${changed}}`;
}

/** With milliseconds, since the hash covers them. */
export function eventTime(at: number): string {
  return new Date(at).toISOString();
}

/** The hash of an event whose predecessor in the organization has `previous` ("" for the first). */
export function eventHash(previous: string, text: string): string {
  return hash("sha256", `${previous}\n${text}`, "hex");
}

/** One event, or several of the same organization in their order. */
export async function record(tx: Transaction, events: AuditEvent | readonly AuditEvent[]): Promise<void> {
  const all = [events].flat();
  const orgId = all[0]?.orgId ?? null;
  const last = await tx.get(
    orgId === null
      ? "SELECT hash FROM events WHERE org_id IS NULL ORDER BY id DESC LIMIT 1"
      : "SELECT hash FROM events WHERE org_id = $1 ORDER BY id DESC LIMIT 1",
    orgId === null ? [] : [orgId],
  );
  let previous = last === undefined ? "" : textOf(last, "hash");
  for (const each of all) {
    const row = {
      ...each,
      actor: JSON.stringify(each.actor),
      before: each.before === undefined ? null : JSON.stringify(each.before),
      after: each.after === undefined ? null : JSON.stringify(each.after),
    };
    previous = eventHash(previous, eventText(row));
    await tx.run(
      `INSERT INTO events (org_id, at, type, actor, subject, before, after, hash)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
      [orgId, row.at, row.type, row.actor, row.subject, row.before, row.after, previous],
    );
  }
}
