// The audit log.

import { type Reader, type Transaction } from "../database.ts";
import {
  integer,
  integerOrNull,
  queryAll,
  queryOne,
  serial,
  table,
  text,
  textOrNull,
  type TableRow,
} from "../table.ts";

/** Append-only; each row's hash covers the previous hash. `actor`, `before` and `after` are JSON, exactly as hashed. */
export const events = table(
  "events",
  {
    id: serial,
    orgId: integerOrNull("REFERENCES organizations (id)"),
    at: integer(),
    type: text(),
    actor: text(),
    subject: text(),
    before: textOrNull(),
    after: textOrNull(),
    hash: text(),
  },
  { indexes: ["CREATE INDEX events_org ON events (org_id, id)"] },
);
export type EventRow = TableRow<typeof events>;

/** The events after an id, oldest first. Ids rise in the order of commits. `orgId` null: events of no organization. */
export function eventsAfter(
  reader: Pick<Reader, "all">,
  orgId: number | null,
  id: number,
  limit: number,
): Promise<EventRow[]> {
  const [owned, params] = orgId === null ? ["org_id IS NULL", []] : ["org_id = $3", [orgId]];
  const sql = `SELECT ${events.select()} FROM events WHERE id > $1 AND ${owned} ORDER BY id LIMIT $2`;
  return queryAll(reader, events, sql, [id, limit, ...params]);
}

// Every change records an event, so both texts are constant.
const lastHash = (owned: string) => `SELECT hash FROM events WHERE ${owned} ORDER BY id DESC LIMIT 1`;
const [lastOfNone, lastOfOrganization] = [lastHash("org_id IS NULL"), lastHash("org_id = $1")];
const insertion = `INSERT INTO events (org_id, at, type, actor, subject, before, after, hash)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`;
const hashColumn = events.pick("hash");

/** The end of the chain; "" before the first event. */
export async function lastEventHash(reader: Pick<Reader, "get">, orgId: number | null): Promise<string> {
  const [sql, params] = orgId === null ? [lastOfNone, []] : [lastOfOrganization, [orgId]];
  return (await queryOne(reader, hashColumn, sql, params))?.hash ?? "";
}

export async function insertEvent(tx: Pick<Transaction, "run">, event: Omit<EventRow, "id">): Promise<void> {
  const { orgId, at, type, actor, subject, before, after, hash } = event;
  await tx.run(insertion, [orgId, at, type, actor, subject, before, after, hash]);
}
