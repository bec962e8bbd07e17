// The chain of hashes of the audit log, as the browser verifies it: page by page, from the oldest event on. Pure.

import { hashedTexts } from "../../protocol/hashed-texts.ts";
import { isObject } from "../../base/is-object.ts";
import type { Event as AuditEvent } from "../../api/events.ts";

export type Chain = {
  events: number;
  /** The hash of the last event: a copy elsewhere proves later that no event was cut off the end. */
  head: string;
  /** The id of the first event whose hash does not match; undefined: none. */
  brokenAt: number | undefined;
  first: AuditEvent | undefined;
  /** The hash that the first event continues from: of the newest archive that ends before it, "" without one. */
  begin: string;
};

export const emptyChain: Chain = { events: 0, head: "", brokenAt: undefined, first: undefined, begin: "" };

type Hash = (text: string) => Promise<string>;

/**
 * Whether an event has the hash that follows from it and the previous hash. The hash covers the event as the API shows it, without
 * `id` and `hash`, or as an earlier version wrote it (hashedTexts).
 */
async function hasItsHash(event: AuditEvent, previous: string, sha256: Hash): Promise<boolean> {
  const { at, type, actor, subject, before, after, hash } = event;
  const text = JSON.stringify({ at, type, actor, subject, before, after });
  for (const each of hashedTexts(text)) if ((await sha256(`${previous}\n${each}`)) === hash) return true;
  return false;
}

/** The chain with the next events, oldest first. `sha256`: in hex. */
export async function verifyNext(chain: Chain, events: readonly AuditEvent[], sha256: Hash): Promise<Chain> {
  let { head, brokenAt, first, begin } = chain;
  for (const event of events) {
    if (first === undefined) first = event;
    else if (!(await hasItsHash(event, head, sha256))) brokenAt ??= event.id;
    begin = archivedBefore(event, first) ?? begin;
    head = event.hash;
  }
  return { events: chain.events + events.length, head, brokenAt, first, begin };
}

/** The whole chain: which hash its first event continues from is known when all events were seen. */
export async function verifyEnd(chain: Chain, sha256: Hash): Promise<Chain> {
  const { first, begin } = chain;
  if (first === undefined || (await hasItsHash(first, begin, sha256))) return chain;
  return { ...chain, brokenAt: first.id };
}

/** The last hash of an archive that ends before the first event. */
function archivedBefore({ type, after }: AuditEvent, first: AuditEvent): string | undefined {
  const archive = type === "events.archived" ? after?.["archive"] : undefined;
  if (!isObject(archive) || Number(archive["last"]) >= first.id) return undefined;
  return typeof archive["last_hash"] === "string" ? archive["last_hash"] : undefined;
}
