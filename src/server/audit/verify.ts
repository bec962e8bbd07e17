// Verifies the hash chains of the audit log: every chain, and each from its first event or its newest archive to its end,
// whatever is found on the way.

import { hash } from "node:crypto";
import { messageOf } from "../../base/errors.ts";
import type { SecretKeys } from "../../pki/secrets.ts";
import { nextRound } from "../http/heavy-work.ts";
import type { Reader } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { eventsAfter, lastArchived, sizeOfEvent, type EventRow } from "../store/tables/events.ts";
import { organizations } from "../store/tables/organizations.ts";
import { readPublicArchiveKey } from "./archive-key.ts";
import { cutOf, isOurs, type Cut } from "./archive-cut.ts";
import { continues, eventText } from "./record.ts";

/** A place where a chain does not continue. */
export type Break = {
  /** Id of the next event; null: no event is left. */
  event: number | null;
  /** The end of a sentence about the event, or about the log if no event is left. */
  what: string;
  /**
   * Covers what is stored there now, and everything before. An administrator who examined the break accepts it by
   * this hash, and nothing else with it.
   */
  hash: string;
};

export type Chain = {
  /** Null: events of no organization (users, failed sign-ins). */
  organization: string | null;
  events: number;
  /** The hash of the last event. Keep a copy elsewhere: it proves later that no event was cut off the end. */
  head: string;
  /** The first breaks. */
  breaks: readonly Break[];
  /** How many more breaks there are. */
  more: number;
  /** The newest archive of the events before. Null: the chain begins with its first event. */
  archived: (Cut["archive"] & { file: string }) | null;
};

const pageSize = { limit: 1000, bytes: 1_048_576 };
const maxBreaks = 100;
const slugs = organizations.pick("id", "slug");

/** Recomputes every chain, from its first event or from the signed cut behind its newest archive. */
export async function verifyChains(db: Reader, secretKey: SecretKeys): Promise<Chain[]> {
  const key = await readPublicArchiveKey(db, secretKey);
  const chains = [await verifyChain(db, { id: null, slug: null }, key)];
  const sql = `SELECT ${slugs.select()} FROM organizations ORDER BY id`;
  for (const org of await queryAll(db, slugs, sql)) chains.push(await verifyChain(db, org, key));
  return chains;
}

/** An event that was verified, as it is stored, or parsed in an archive. */
export type VerifiedEvent = { id: number; hash: string; type: string; after: unknown };

/**
 * Verifies one chain; with nulls, that of the events of no organization. After a break, it goes on from the hash that stands
 * there: a later change is found, too. `archiveKey`: undefined: the server never signed an archive. `see`: gets each event.
 */
export async function verifyChain(
  db: Reader,
  { id: orgId, slug }: { id: number | null; slug: string | null },
  archiveKey: string | undefined,
  see: (event: VerifiedEvent) => void | Promise<void> = () => undefined,
): Promise<Chain> {
  // `newest`: the event about the newest archive. `cut`: the signed statement in it, which says where that archive ends.
  const newest = await lastArchived(db, orgId);
  const cut = newest === undefined ? undefined : cutOf(newest.after);
  const isOfChain = cut?.archive.organization_id === orgId;
  const breaks: Break[] = [];
  let more = 0;
  const noteBreak = (found: Break) => {
    if (breaks.length < maxBreaks) breaks.push(found);
    else more++;
  };
  const isProven = isOfChain && isOurs(cut, archiveKey);
  if (newest !== undefined && !isProven)
    noteBreak(breakAt(newest.id, "does not name an archive that this server signed", newest.after ?? ""));
  let head = isOfChain ? cut.archive.last_hash : "";
  const archivedBytes = isOfChain ? cut.archived_bytes : undefined;
  const isCountRight = makeCountCheck(newest === undefined ? 0 : archivedBytes);
  let events = 0;
  for (let last = 0; ;) {
    const page = await eventsAfter(db, orgId, last, pageSize);
    if (page.length === 0) break;
    for (const event of page) {
      const text = textOf(event);
      const isRight = isCountRight(event);
      if (!continues(head, text, event.hash)) noteBreak(breakAt(event.id, whatChanged, `${head}\n${text}`));
      else if (!isRight) noteBreak(breakAt(event.id, whatMiscounted, `${event.hash}\n${event.chainBytes}`));
      head = event.hash;
      last = event.id;
      events++;
      const seen = see(event);
      if (seen !== undefined) await seen;
    }
    await nextRound();
  }
  if (orgId !== null && newest === undefined && events === 0)
    noteBreak(breakAt(null, whatEmptied, `${orgId}`));
  const archived = cut === undefined ? null : { ...cut.archive, file: cut.file };
  return { organization: slug, events, head, breaks, more, archived };
}

// `what` of breaks.
export const whatChanged = "or the events before it, were changed";
const whatMiscounted = "has a wrong count of bytes";
const whatEmptied = "is empty, although the creation of an organization is an event";

export function breakAt(event: number | null, what: string, text: string): Break {
  return { event, what, hash: hash("sha256", text, "hex") };
}

/** A sentence for each break of each chain. Those with a hash in `known` are left out. */
export function faultsIn(chains: readonly Chain[], known: ReadonlySet<string> = new Set()): string[] {
  return chains.flatMap(({ organization, breaks, more }) => {
    const log = organization === null ? "the log of the operator" : `the log of ${organization}`;
    const left = breaks.filter((each) => !known.has(each.hash)).map((each) => sentenceOf(log, each));
    return more === 0 ? left : [...left, `${log} has ${more} more breaks`];
  });
}

export function sentenceOf(log: string, { event, what, hash }: Break): string {
  return event === null ? `${log} ${what} (${hash})` : `${log}: event ${event}, ${what} (${hash})`;
}

/**
 * Returns a function that takes one event after the other, and tells whether it has the count that follows from the last one. The
 * count (`chainBytes`) is that of the bytes of this event and of all before it. No hash covers it, but it decides what is archived and
 * how much an organization stores. Earlier versions counted none; of those, some may be in archives. `atFirst`: the bytes of the
 * archived events; undefined: not known.
 */
function makeCountCheck(atFirst: number | undefined): (event: EventRow) => boolean {
  /** Of all events so far; undefined: not known. */
  let bytes = atFirst;
  /** An event had a count. */
  let isBegun = false;
  return (event) => {
    const { chainBytes } = event;
    if (chainBytes === null) {
      const isComplete = isBegun || atFirst === 0;
      bytes = isComplete && bytes !== undefined ? bytes + sizeOfEvent(event) : undefined;
      return true;
    }
    const isRight = bytes === undefined || chainBytes === bytes + sizeOfEvent(event);
    bytes = chainBytes;
    isBegun = true;
    return isRight;
  };
}

/** A row may have been changed to values that no event has, such as an invalid time. */
function textOf(event: EventRow): string {
  try {
    return eventText(event);
  } catch (error) {
    return messageOf(error);
  }
}
