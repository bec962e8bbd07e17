// The audit log.

import type { Params, Reader, Transaction } from "../database.ts";
import {
  computed,
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

const measured = computed({ id: integer(), bytes: integer() });
/** The bytes of an event's JSON: its long columns, and what the others take at most. */
const eventBytes = `octet_length(subject) + octet_length(actor) + coalesce(octet_length(before), 0)
  + coalesce(octet_length(after), 0) + 256`;

/**
 * The events after an id, oldest first: at most `limit`, and together at most `bytes` of JSON, but at least one. Ids rise
 * in the order of commits. `orgId` null: events of no organization.
 */
export async function eventsAfter(
  reader: Pick<Reader, "all">,
  orgId: number | null,
  id: number,
  { limit, bytes }: { limit: number; bytes: number },
): Promise<EventRow[]> {
  const [owned, params] = ownedBy(orgId);
  const sizes = `SELECT id, ${eventBytes} AS bytes FROM events WHERE id > $1 AND ${owned} ORDER BY id LIMIT $2`;
  let room = bytes;
  let last: number | undefined;
  for (const next of await queryAll(reader, measured, sizes, [id, limit, ...params])) {
    room -= next.bytes;
    if (room < 0 && last !== undefined) break;
    last = next.id;
  }
  if (last === undefined) return [];
  const sql = `SELECT ${events.select()} FROM events WHERE id > $1 AND id <= $2 AND ${owned} ORDER BY id`;
  return queryAll(reader, events, sql, [id, last, ...params]);
}

/** The condition for one chain, with its parameter $3. */
function ownedBy(orgId: number | null): [string, Params] {
  return orgId === null ? ["org_id IS NULL", []] : ["org_id = $3", [orgId]];
}

const queued = events.pick("id", "type");

/** The types of an organization's events after an id, oldest first. */
export function typesAfter(reader: Pick<Reader, "all">, orgId: number, id: number, limit: number) {
  const sql = `SELECT ${queued.select()} FROM events WHERE id > $1 AND org_id = $3 ORDER BY id LIMIT $2`;
  return queryAll(reader, queued, sql, [id, limit, orgId]);
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
