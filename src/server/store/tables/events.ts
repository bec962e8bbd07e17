// The audit log.

import type { Params, Reader, Transaction } from "../database.ts";
import {
  computed,
  integer,
  integerOrNull,
  queryAll,
  queryNumber,
  queryOne,
  serial,
  since,
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
    /** Bytes of this event and of all before it in its chain. Null: an older version wrote the event. */
    chainBytes: since(11, integerOrNull()),
  },
  { indexes: ["CREATE INDEX events_org ON events (org_id, id)"] },
);
export type EventRow = TableRow<typeof events>;

const measured = computed({ id: integer(), bytes: integer() });
/** Maximum bytes of the short columns of an event, with the keys. */
const frameBytes = 256;
/** The bytes of an event's JSON: its long columns, and what the others take at most. */
const eventBytes = `octet_length(subject) + octet_length(actor) + coalesce(octet_length(before), 0)
  + coalesce(octet_length(after), 0) + ${frameBytes}`;

/** Maxima of a page. `within`: only events of this time. */
export type EventPage = { limit: number; bytes: number; within?: EventSpan | undefined };
/**
 * From `from` to before `until`, ms. The ids are of the first and the last event in the whole hours of these times: they bound what
 * is read, and between them may be events of other times, from a clock that was set back.
 */
export type EventSpan = { from: number; until: number; firstId: number; lastId: number };

/** `first`, `last`: ids, both inclusive. `order`: in which the events are read until the page is full. */
type IdRange = { first: number; last: number; order: "id" | "id DESC" };

/**
 * The events after an id, oldest first: at most `limit`, and together at most `bytes` of JSON, but at least one. Ids rise
 * in the order of commits. `orgId` null: events of no organization.
 */
export function eventsAfter(
  reader: Reader,
  orgId: number | null,
  id: number,
  page: EventPage,
): Promise<EventRow[]> {
  const { firstId = 0, lastId = Number.MAX_SAFE_INTEGER } = page.within ?? {};
  return pageOf(reader, orgId, { first: Math.max(id + 1, firstId), last: lastId, order: "id" }, page);
}

/** The newest events before an id, oldest first; otherwise as eventsAfter. */
export function eventsBefore(
  reader: Reader,
  orgId: number | null,
  id: number,
  page: EventPage,
): Promise<EventRow[]> {
  const { firstId = 0, lastId = Number.MAX_SAFE_INTEGER } = page.within ?? {};
  return pageOf(reader, orgId, { first: firstId, last: Math.min(id - 1, lastId), order: "id DESC" }, page);
}

/** The first events of the range that fit into the page, oldest first. */
async function pageOf(
  reader: Reader,
  orgId: number | null,
  range: IdRange,
  page: EventPage,
): Promise<EventRow[]> {
  const ids = await fittingIds(reader, orgId, range, page);
  if (ids.length === 0) return [];
  const [owned, params] = ownedBy(orgId, 3, page.within);
  const sql = `SELECT ${events.select()} FROM events WHERE id >= $1 AND id <= $2 AND ${owned} ORDER BY id`;
  return queryAll(reader, events, sql, [Math.min(...ids), Math.max(...ids), ...params]);
}

/** Sizes are added before long columns are read. */
async function fittingIds(
  reader: Reader,
  orgId: number | null,
  { first, last, order }: IdRange,
  { limit, bytes, within }: EventPage,
): Promise<number[]> {
  const [owned, params] = ownedBy(orgId, 4, within);
  const sql = `SELECT id, ${eventBytes} AS bytes FROM events WHERE id >= $1 AND id <= $2 AND ${owned}
    ORDER BY ${order} LIMIT $3`;
  let room = bytes;
  const fitting: number[] = [];
  for (const next of await queryAll(reader, measured, sql, [first, last, limit, ...params])) {
    room -= next.bytes;
    if (room < 0 && fitting.length > 0) break;
    fitting.push(next.id);
  }
  return fitting;
}

/** The condition for one chain. Its parameters, if any, have the numbers from `place` on. */
function chainOf(orgId: number | null, place: number): [string, Params] {
  return orgId === null ? ["org_id IS NULL", []] : [`org_id = $${place}`, [orgId]];
}

/** The condition for one chain, and within a span. Its parameters have the numbers from `place` on. */
function ownedBy(orgId: number | null, place: number, within: EventSpan | undefined): [string, Params] {
  const [chain, owner] = chainOf(orgId, place);
  if (within === undefined) return [chain, owner];
  const next = place + owner.length;
  return [`${chain} AND at >= $${next} AND at < $${next + 1}`, [...owner, within.from, within.until]];
}

const hourMs = 3_600_000;
/** SQL for the number of hours since 1970: `at` is an integer in both databases, so the quotient is one too. */
const hourOf = `(at / ${hourMs})`;
export const indexOfHours = `CREATE INDEX events_hours ON events (org_id, ${hourOf}, type, id)`;

const hoursOf = (from: number, until: number) => [Math.floor(from / hourMs), Math.ceil(until / hourMs)];

const typesOfHour = computed({ hour: integer(), type: text(), n: integer() });

/** Counts the events of an organization by hour and type, in the whole hours from `from` to `until`, ms. Reads the index alone. */
export async function countsByHour(reader: Reader, orgId: number, from: number, until: number) {
  const sql = `SELECT ${hourOf} AS hour, type, count(*) AS n FROM events
    WHERE org_id = $1 AND ${hourOf} >= $2 AND ${hourOf} < $3 GROUP BY ${hourOf}, type ORDER BY ${hourOf}, type`;
  const rows = await queryAll(reader, typesOfHour, sql, [orgId, ...hoursOf(from, until)]);
  return rows.map(({ hour, type, n }) => ({ at: hour * hourMs, type, n }));
}

const ends = computed({ firstId: integerOrNull(), lastId: integerOrNull() });

/** The span with its ids; undefined: no event is in it. */
export async function spanOf(
  reader: Reader,
  orgId: number | null,
  { from, until }: Pick<EventSpan, "from" | "until">,
): Promise<EventSpan | undefined> {
  const [chain, owner] = chainOf(orgId, 3);
  const sql = `SELECT min(id) AS first_id, max(id) AS last_id FROM events
    WHERE ${chain} AND ${hourOf} >= $1 AND ${hourOf} < $2`;
  const [found] = await queryAll(reader, ends, sql, [...hoursOf(from, until), ...owner]);
  const { firstId = null, lastId = null } = found ?? {};
  return firstId === null || lastId === null ? undefined : { from, until, firstId, lastId };
}

const typePick = events.pick("id", "type");

/** The types of the events of a chain after an id, oldest first. */
export function typesAfter(reader: Reader, orgId: number | null, id: number, limit: number) {
  const [chain, owner] = chainOf(orgId, 3);
  const sql = `SELECT ${typePick.select()} FROM events WHERE id > $1 AND ${chain} ORDER BY id LIMIT $2`;
  return queryAll(reader, typePick, sql, [id, limit, ...owner]);
}

/**
 * A query of one chain, by its `orgId`. Every change records an event, so these texts are made once: the store finds the
 * statement of a known text faster.
 */
function chainQuery(textFor: (chain: string) => string): (orgId: number | null) => [string, Params] {
  const [ofNone, ofOrganization] = [textFor("org_id IS NULL"), textFor("org_id = $1")];
  return (orgId) => (orgId === null ? [ofNone, []] : [ofOrganization, [orgId]]);
}

const lastOf = (condition: string) =>
  `SELECT id, hash, chain_bytes FROM events WHERE ${condition} ORDER BY id DESC LIMIT 1`;
const lastEvent = chainQuery(lastOf);
const insertion = `INSERT INTO events (org_id, at, type, actor, subject, before, after, hash, chain_bytes)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`;
const endPick = events.pick("id", "hash", "chainBytes");

/** The end of a chain: the last hash ("" before the first event), and the bytes of all events so far. */
export async function chainEnd(
  reader: Reader,
  orgId: number | null,
): Promise<{ hash: string; bytes: number }> {
  const last = await queryOne(reader, endPick, ...lastEvent(orgId));
  if (last === undefined) return { hash: "", bytes: 0 };
  return { hash: last.hash, bytes: last.chainBytes ?? (await measureChain(reader, orgId)) };
}

/** Adds what an older version recorded without measuring: once for each chain, and after each use of that version. */
async function measureChain(reader: Reader, orgId: number | null): Promise<number> {
  const [chain, owner] = chainOf(orgId, 1);
  const known = await queryOne(reader, endPick, lastOf(`${chain} AND chain_bytes IS NOT NULL`), owner);
  const sum = `SELECT coalesce(sum(${eventBytes}), 0) AS n FROM events
    WHERE ${chain} AND id > $${owner.length + 1}`;
  return (known?.chainBytes ?? 0) + (await queryNumber(reader, sum, [...owner, known?.id ?? 0]));
}

export async function insertEvent(tx: Transaction, event: Omit<EventRow, "id">): Promise<void> {
  const { orgId, at, type, actor, subject, before, after, hash, chainBytes } = event;
  await tx.run(insertion, [orgId, at, type, actor, subject, before, after, hash, chainBytes]);
}

/** The bytes of an event that is not stored yet, counted as in `eventBytes`. */
export function sizeOfEvent(event: Pick<EventRow, "subject" | "actor" | "before" | "after">): number {
  return (
    Buffer.byteLength(event.subject + event.actor + (event.before ?? "") + (event.after ?? "")) + frameBytes
  );
}

const cutPick = events.pick("id", "at", "after");
const newestCut = chainQuery(
  (chain) =>
    `SELECT id, at, after FROM events WHERE type = 'events.archived' AND ${chain} ORDER BY id DESC LIMIT 1`,
);

/** The newest `events.archived` of a chain. */
export function lastArchived(reader: Reader, orgId: number | null) {
  return queryOne(reader, cutPick, ...newestCut(orgId));
}

/** Deletes the events of a chain from one id to another, both inclusive, with the records of their deliveries. How many events. */
export async function deleteEvents(
  tx: Transaction,
  orgId: number | null,
  [first, last]: [number, number],
): Promise<number> {
  const [chain, owner] = chainOf(orgId, 3);
  const range = `${chain} AND id >= $1 AND id <= $2`;
  const params = [first, last, ...owner];
  await tx.run(`DELETE FROM deliveries WHERE event_id IN (SELECT id FROM events WHERE ${range})`, params);
  return tx.run(`DELETE FROM events WHERE ${range}`, params);
}
