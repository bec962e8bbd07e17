// Reading the audit log: page by page for who follows it, and whole to prove that nothing in it was changed. Writing it
// is events.ts.

import * as v from "valibot";
import { eventHash, eventText, eventTime, type StoredEvent } from "./record.ts";
import { numberOf, textOf, textOrNull, type Reader, type Row } from "../store/database.ts";

const Details = v.nullable(v.record(v.string(), v.unknown()));

/** The hash covers all but `id` and `hash`, in this order. */
export const Event = v.object({
  id: v.number(),
  at: v.string(),
  type: v.string(),
  actor: v.object({ kind: v.string(), id: v.nullable(v.number()), ip: v.nullable(v.string()) }),
  subject: v.string(),
  before: Details,
  after: Details,
  hash: v.string(),
});
export type Event = v.InferOutput<typeof Event>;

export const eventColumns = "id, at, type, actor, subject, before, after, hash";

export function eventOf(row: Row): Event {
  const stored = storedOf(row);
  const details = (text: string | null) => (text === null ? null : v.parse(Details, JSON.parse(text)));
  return {
    id: numberOf(row, "id"),
    at: eventTime(stored.at),
    type: stored.type,
    actor: v.parse(Event.entries.actor, JSON.parse(stored.actor)),
    subject: stored.subject,
    before: details(stored.before),
    after: details(stored.after),
    hash: textOf(row, "hash"),
  };
}

function storedOf(row: Row): StoredEvent {
  return {
    at: numberOf(row, "at"),
    type: textOf(row, "type"),
    actor: textOf(row, "actor"),
    subject: textOf(row, "subject"),
    before: textOrNull(row, "before"),
    after: textOrNull(row, "after"),
  };
}

/** The events of an organization after the one with the id `after`, oldest first. Ids rise in the order of commits. */
export async function listEvents(
  db: Pick<Reader, "all">,
  orgId: number,
  { after, limit }: { after: number; limit: number },
): Promise<Event[]> {
  const rows = await db.all(
    `SELECT ${eventColumns} FROM events WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3`,
    [orgId, after, limit],
  );
  return rows.map(eventOf);
}

export type Chain = {
  /** Null: what belongs to no organization (accounts, failed sign-ins). */
  organization: string | null;
  events: number;
  /** Of the last event: noted down elsewhere, it shows later that none was cut off the end. */
  head: string;
  /** The id of the first event that does not follow from the one before it. */
  brokenAt: number | null;
};

const pageSize = 1000;

/** Recomputes every chain from its first event on. */
export async function verifyChains(db: Reader): Promise<Chain[]> {
  const organizations = await db.all("SELECT id, slug FROM organizations ORDER BY id");
  const chains = [await verifyChain(db, null, null)];
  for (const row of organizations) {
    chains.push(await verifyChain(db, numberOf(row, "id"), textOf(row, "slug")));
  }
  return chains;
}

async function verifyChain(db: Reader, orgId: number | null, organization: string | null): Promise<Chain> {
  const whose = orgId === null ? "org_id IS NULL" : "org_id = $2";
  const chain: Chain = { organization, events: 0, head: "", brokenAt: null };
  for (let last = 0; ;) {
    const rows = await db.all(
      `SELECT ${eventColumns} FROM events WHERE id > $1 AND ${whose} ORDER BY id LIMIT ${pageSize}`,
      orgId === null ? [last] : [last, orgId],
    );
    for (const row of rows) {
      last = numberOf(row, "id");
      chain.events++;
      const expected = eventHash(chain.head, eventText(storedOf(row)));
      if (expected !== textOf(row, "hash")) chain.brokenAt ??= last;
      chain.head = textOf(row, "hash");
    }
    if (rows.length < pageSize) return chain;
  }
}
