// Writes the audit log. It is append-only, chained by hash within each organization, and written in the transaction of
// the change itself. Reads nothing but the end of the chain.

import type { EventType } from "../../api/events.ts";
import { hash } from "node:crypto";
import type { Call, Caller } from "../http/route.ts";
import { requireLockOf, type Transaction } from "../store/database.ts";
import { hashedTexts } from "../../protocol/hashed-texts.ts";
import { toStorable } from "../../base/text.ts";
import { chainEnd, insertEvent, sizeOfEvent, type EventRow } from "../store/tables/events.ts";
import { differences } from "./differences.ts";

export type Actor = {
  kind: "person" | "service" | "node" | "operator" | "server" | "nobody";
  id: number | null;
  ip: string | null;
};

export type AuditEvent = {
  /** Null: an event of no organization. */
  orgId: number | null;
  /** Ms. */
  at: number;
  type: EventType;
  actor: Actor;
  /** `node/17`, `member/a@example.org`. */
  subject: string;
  /** Never with a secret in it. With both, only what differs is stored. */
  before?: Record<string, unknown>;
  after?: Record<string, unknown>;
};

/** The event of a certificate that was signed. None without a fingerprint. */
export function issuedEvents(
  event: Pick<AuditEvent, "orgId" | "at" | "actor" | "subject">,
  fingerprint: string | undefined,
): AuditEvent[] {
  if (fingerprint === undefined) return [];
  return [{ ...event, type: "certificate.issued", after: { fingerprint } }];
}

/** The operator, through `agent admin` on the server's machine. `id`: the user's number there; null on Windows. */
export const operator: Actor = { kind: "operator", id: process.getuid?.() ?? null, ip: null };

/** The control plane itself, without a request. */
export const ourselves: Actor = { kind: "server", id: null, ip: null };

export function actorOf(call: Pick<Call, "caller" | "address">): Actor {
  const { caller } = call;
  const kind = caller.kind === "none" ? "nobody" : caller.kind;
  return { kind, id: callerId(caller), ip: caller.kind === "operator" ? null : call.address };
}

function callerId(caller: Caller): number | null {
  if (caller.kind === "operator") return caller.uid;
  if (caller.kind === "person") return caller.userId;
  if (caller.kind === "service") return caller.tokenId;
  return caller.kind === "node" ? caller.nodeId : null;
}

/**
 * `person/7`, `service/3`, `operator/`: an actor as columns such as `invited_by` store it. All users of the machine who
 * can open the data are one operator.
 */
export function principal({ kind, id }: Pick<Actor, "kind" | "id">): string {
  return `${kind}/${kind === "operator" ? "" : (id ?? "")}`;
}

/** The columns that the hash covers. */
export type HashedEvent = Omit<EventRow, "id" | "orgId" | "hash" | "chainBytes">;

/**
 * The text that is hashed: the event's JSON exactly as the API answers it, without `id` and `hash`. A reader that keeps
 * the answers can thus verify the chain.
 */
export function eventText({ at, type, actor, subject, before, after }: HashedEvent): string {
  const head = `{"at":${JSON.stringify(eventTime(at))},"type":${JSON.stringify(type)},"actor":${actor}`;
  const changed = `"before":${before ?? "null"},"after":${after ?? "null"}`;
  return `${head},"subject":${JSON.stringify(subject)},${changed}}`;
}

/** The hash covers the milliseconds too. */
export function eventTime(at: number): string {
  return new Date(at).toISOString();
}

/** `previous`: the hash of the organization's previous event, "" for the first. */
export function eventHash(previous: string, text: string): string {
  return hash("sha256", `${previous}\n${text}`, "hex");
}

/**
 * Whether an event with this text and hash continues the chain. `previous`: as in eventHash. Earlier versions hashed some texts in
 * another form.
 */
export function continues(previous: string, text: string, ownHash: string): boolean {
  for (const each of hashedTexts(text)) if (eventHash(previous, each) === ownHash) return true;
  return false;
}

/** Records one event, or several of the same organization in their order. */
export async function record(tx: Transaction, event: AuditEvent | readonly AuditEvent[]): Promise<void> {
  const all = [event].flat();
  const orgId = all[0]?.orgId ?? null;
  // Two writers at the end of one chain would split it.
  requireLockOf(tx, orgId);
  let { hash, bytes } = await chainEnd(tx, orgId);
  // Awaited together: a transaction runs its statements in the order of the calls.
  const inserted: Promise<void>[] = [];
  for (const { at, type, actor, subject, ...details } of all) {
    // The hashed text is the stored text. JSON escapes what is not storable.
    const hashed = {
      at,
      type,
      actor: JSON.stringify(actor),
      subject: toStorable(subject),
      ...jsonOf(details),
    };
    hash = eventHash(hash, eventText(hashed));
    bytes += sizeOfEvent(hashed);
    inserted.push(insertEvent(tx, { orgId, ...hashed, hash, chainBytes: bytes }));
  }
  await Promise.all(inserted);
}

function jsonOf({ before, after }: Pick<AuditEvent, "before" | "after">): Pick<EventRow, "before" | "after"> {
  const changed =
    before === undefined || after === undefined ? { before, after } : differences(before, after);
  const json = (details: AuditEvent["before"]) => (details === undefined ? null : JSON.stringify(details));
  return { before: json(changed.before), after: json(changed.after) };
}
