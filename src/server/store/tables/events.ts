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
/** From `from` to before `until`, ms, with the ids of the first and the last event in the hours of these times. */
export type EventSpan = { from: number; until: number; firstId: number; lastId: number };

/**
 * The events after an id, oldest first: at most `limit`, and together at most `bytes` of JSON, but at least one. Ids rise
 * in the order of commits. `orgId` null: events of no organization.
 */
export async function eventsAfter(
  reader: Pick<Reader, "all">,
  orgId: number | null,
  id: number,
  page: EventPage,
): Promise<EventRow[]> {
  const after = Math.max(id, (page.within?.firstId ?? 0) - 1);
  const fitting = await fittingIds(reader, orgId, { condition: "id > $1", order: "id", id: after }, page);
  return fitting.length === 0 ? [] : eventsWith(reader, orgId, fitting, page);
}

/** The newest events before an id, oldest first; otherwise as eventsAfter. */
export async function eventsBefore(
  reader: Pick<Reader, "all">,
  orgId: number | null,
  id: number,
  page: EventPage,
): Promise<EventRow[]> {
  const before = Math.min(id, (page.within?.lastId ?? id) + 1);
  const asked = { condition: "id < $1", order: "id DESC", id: before };
  const fitting = await fittingIds(reader, orgId, asked, page);
  return fitting.length === 0 ? [] : eventsWith(reader, orgId, fitting.reverse(), page);
}

/** Ids of events that fit into the page, in their order. */
async function fittingIds(
  reader: Pick<Reader, "all">,
  orgId: number | null,
  { condition, order, id }: { condition: string; order: string; id: number },
  { limit, bytes, within }: EventPage,
): Promise<number[]> {
  const [owned, params] = ownedBy(orgId, within);
  const sql = `SELECT id, ${eventBytes} AS bytes FROM events WHERE ${condition} AND ${owned} ORDER BY ${order} LIMIT $2`;
  let room = bytes;
  const fitting: number[] = [];
  for (const next of await queryAll(reader, measured, sql, [id, limit, ...params])) {
    room -= next.bytes;
    if (room < 0 && fitting.length > 0) break;
    fitting.push(next.id);
  }
  return fitting;
}

async function eventsWith(
  reader: Pick<Reader, "all">,
  orgId: number | null,
  ids: readonly number[],
  { within }: EventPage,
): Promise<EventRow[]> {
  const [owned, params] = ownedBy(orgId, within);
  const sql = `SELECT ${events.select()} FROM events WHERE id >= $1 AND id <= $2 AND ${owned} ORDER BY id`;
  return queryAll(reader, events, sql, [ids[0] ?? 0, ids.at(-1) ?? 0, ...params]);
}

const hourMs = 3_600_000;
/** In milliseconds, `at` is an integer in both databases, and so is the quotient. The index `events_hours` has these. */
const hourOf = `(at / ${hourMs})`;
export const indexOfHours = `CREATE INDEX events_hours ON events (org_id, ${hourOf}, type, id)`;

const hoursOf = (from: number, until: number) => [Math.floor(from / hourMs), Math.ceil(until / hourMs)];

const typesOfHour = computed({ hour: integer(), type: text(), n: integer() });

/** How many events of each type an organization has in each hour from that time on. Read from the index alone. */
export async function countsByHour(reader: Pick<Reader, "all">, orgId: number, from: number, until: number) {
  const sql = `SELECT ${hourOf} AS hour, type, count(*) AS n FROM events
    WHERE org_id = $1 AND ${hourOf} >= $2 AND ${hourOf} < $3 GROUP BY ${hourOf}, type ORDER BY ${hourOf}, type`;
  const rows = await queryAll(reader, typesOfHour, sql, [orgId, ...hoursOf(from, until)]);
  return rows.map(({ hour, type, n }) => ({ at: hour * hourMs, type, n }));
}

/**
 * The condition for one chain, with its parameters from $3 on. Within a span, the ids bound what is read: a clock that was set back
 * leaves events of other times between them.
 */
function ownedBy(orgId: number | null, within?: EventSpan): [string, Params] {
  const chain = orgId === null ? "org_id IS NULL" : "org_id = $3";
  const owner = orgId === null ? [] : [orgId];
  if (within === undefined) return [chain, owner];
  const { firstId, lastId, from, until } = within;
  const place = (at: number) => `$${owner.length + 3 + at}`;
  const span = `id >= ${place(0)} AND id <= ${place(1)} AND at >= ${place(2)} AND at < ${place(3)}`;
  return [`${chain} AND ${span}`, [...owner, firstId, lastId, from, until]];
}

const ends = computed({ firstId: integerOrNull(), lastId: integerOrNull() });

/** The span with its ids; undefined: no event is in it. */
export async function spanOf(
  reader: Pick<Reader, "all">,
  orgId: number | null,
  { from, until }: Pick<EventSpan, "from" | "until">,
): Promise<EventSpan | undefined> {
  const [chain, owner] = orgId === null ? ["org_id IS NULL", []] : ["org_id = $3", [orgId]];
  const sql = `SELECT min(id) AS first_id, max(id) AS last_id FROM events
    WHERE ${chain} AND ${hourOf} >= $1 AND ${hourOf} < $2`;
  const [found] = await queryAll(reader, ends, sql, [...hoursOf(from, until), ...owner]);
  const { firstId = null, lastId = null } = found ?? {};
  return firstId === null || lastId === null ? undefined : { from, until, firstId, lastId };
}

const typePick = events.pick("id", "type");

/** The types of the events of a chain after an id, oldest first. */
export function typesAfter(reader: Pick<Reader, "all">, orgId: number | null, id: number, limit: number) {
  const [owned, params] = ownedBy(orgId);
  const sql = `SELECT ${typePick.select()} FROM events WHERE id > $1 AND ${owned} ORDER BY id LIMIT $2`;
  return queryAll(reader, typePick, sql, [id, limit, ...params]);
}

// Every change records an event, so these texts are made once: the store finds the statement of a known text faster.
const lastOf = (owned: string, more = "") =>
  `SELECT id, hash, chain_bytes FROM events WHERE ${owned}${more} ORDER BY id DESC LIMIT 1`;
const [lastOfNone, lastOfOrganization] = [lastOf("org_id IS NULL"), lastOf("org_id = $1")];
const insertion = `INSERT INTO events (org_id, at, type, actor, subject, before, after, hash, chain_bytes)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`;
const endPick = events.pick("id", "hash", "chainBytes");

/** The end of a chain: the last hash ("" before the first event), and the bytes of all events so far. */
export async function chainEnd(
  reader: Pick<Reader, "get">,
  orgId: number | null,
): Promise<{ hash: string; bytes: number }> {
  const [sql, params] = orgId === null ? [lastOfNone, []] : [lastOfOrganization, [orgId]];
  const last = await queryOne(reader, endPick, sql, params);
  if (last === undefined) return { hash: "", bytes: 0 };
  return { hash: last.hash, bytes: last.chainBytes ?? (await measureChain(reader, orgId)) };
}

/** Adds what an older version recorded without measuring: once for each chain, and after each use of that version. */
async function measureChain(reader: Pick<Reader, "get">, orgId: number | null): Promise<number> {
  const [owned, params] = orgId === null ? ["org_id IS NULL", []] : ["org_id = $1", [orgId]];
  const known = await queryOne(reader, endPick, lastOf(owned, " AND chain_bytes IS NOT NULL"), params);
  const sum = `SELECT coalesce(sum(${eventBytes}), 0) AS n FROM events
    WHERE ${owned} AND id > $${params.length + 1}`;
  return (known?.chainBytes ?? 0) + (await queryNumber(reader, sum, [...params, known?.id ?? 0]));
}

export async function insertEvent(tx: Pick<Transaction, "run">, event: Omit<EventRow, "id">): Promise<void> {
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
const newestCut = (owned: string) =>
  `SELECT id, at, after FROM events WHERE type = 'events.archived' AND ${owned} ORDER BY id DESC LIMIT 1`;
const [cutOfNone, cutOfOrganization] = [newestCut("org_id IS NULL"), newestCut("org_id = $1")];

/** The newest `events.archived` of a chain. */
export function lastArchived(reader: Pick<Reader, "get">, orgId: number | null) {
  return orgId === null
    ? queryOne(reader, cutPick, cutOfNone)
    : queryOne(reader, cutPick, cutOfOrganization, [orgId]);
}

/** Deletes the events of a chain from one id to another, with the records of their deliveries. How many events. */
export async function deleteEvents(
  tx: Pick<Transaction, "run">,
  orgId: number | null,
  [first, last]: [number, number],
): Promise<number> {
  const [owned, params] = ownedBy(orgId);
  const range = `${owned} AND id >= $1 AND id <= $2`;
  await tx.run(`DELETE FROM deliveries WHERE event_id IN (SELECT id FROM events WHERE ${range})`, [
    first,
    last,
    ...params,
  ]);
  return tx.run(`DELETE FROM events WHERE ${range}`, [first, last, ...params]);
}
