// Moves the oldest events of a chain into a signed file, and then deletes them. Nothing is deleted before the file is on
// disk; the deletion and the event about it are one transaction. A run that ends early is repeated by the next
// one, with the same file. Events that webhooks still need stay.

import { join } from "node:path";
import { openArchiveKey } from "../audit/archive-key.ts";
import { lastCut, type Cut, type LastCut } from "../audit/archive-cut.ts";
import { ourselves, record } from "../audit/record.ts";
import type { Retention, ServerOptions } from "../options.ts";
import { AppError } from "../../base/errors.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { chainEnd, deleteEvents, eventsAfter, sizeOfEvent, type EventRow } from "../store/tables/events.ts";
import { computed, integerOrNull, queryOne } from "../store/table.ts";
import { beginAgain } from "../store/tables/policy-changes.ts";
import { keepCreators } from "./creators.ts";
import { archiveName, makeArchive, removeLeftovers, storeArchive, type Archive } from "./archive-file.ts";

export type ArchiveDeps = Pick<ServerOptions, "db" | "secretKey" | "system" | "log"> & {
  dataDirectory: string;
};
type Limits = Pick<Retention, "eventsS" | "eventBytes">;
/** An organization; with nulls, the events of the operator. */
export type ChainName = { id: number | null; slug: string | null };

/** Maximum events of one file, and of one transaction. */
const batch = { limit: 1000, bytes: 2 * 1_048_576 };
/** How long old events wait for others, so that a quiet organization gets few files, in ms. */
const partialMs = 7 * 86_400_000;
/** A chain above its maximum is shortened to this share of the maximum. */
const shortenedShare = 0.9;

/** Archives one batch. Returns whether there may be more. */
export async function archiveBatch(deps: ArchiveDeps, chain: ChainName, limits: Limits): Promise<boolean> {
  const { db, system, log, dataDirectory } = deps;
  const cut = await lastCut(db, chain.id);
  const found = await readBatch(db, chain, cut, limits, system.now());
  if (found === undefined) return false;
  // Before the first archive: only the oldest events name the creators of older versions' nodes and webhooks.
  if (cut === undefined && chain.id !== null) await keepCreators(db, chain.id);
  const { events, bytes, hasMore } = found;
  const key = await openArchiveKey(deps);
  const archive = makeArchive({ ...chain, previousHash: cut?.archive.last_hash ?? "" }, events, key);
  await storeArchive(join(dataDirectory, archiveName), archive);
  const archivedBytes = (cut?.archived_bytes ?? 0) + bytes;
  await db.write(async (tx) => {
    await cutOff(tx, chain, archive, archivedBytes, system.now());
    // What is left in the database must be enough to tell who reaches whom. The first archive may take the first rows of an
    // organization, which has no such note if it is younger than the notes.
    if (chain.id !== null && (cut === undefined || events.some(isBeginning))) await beginAgain(tx, chain.id);
  });
  removeLeftovers(join(dataDirectory, archiveName), archive);
  log.info("archived events", {
    organization: chain.slug ?? "(operator)",
    events: events.length,
    file: join(dataDirectory, archiveName, archive.file),
  });
  return hasMore;
}

/** Whether the event has the note `[time, "*", 0, null]`, from which on every row is known (history/past-rows.ts). */
const isBeginning = ({ type, after }: EventRow) =>
  type === "policy.recorded" && after?.includes('"*",0,null]') === true;

type Batch = { events: [EventRow, ...EventRow[]]; bytes: number; hasMore: boolean };

/** The events that are due, from the first one on; undefined if it is not worth a file yet. */
async function readBatch(
  db: Reader,
  { id }: ChainName,
  cut: LastCut | undefined,
  { eventsS, eventBytes }: Limits,
  now: number,
): Promise<Batch | undefined> {
  const dueBefore = now - eventsS * 1000;
  // The end of a chain counts the bytes of all events ever.
  const stored = (await chainEnd(db, id)).bytes - (cut?.archived_bytes ?? 0);
  const isTooLarge = stored > eventBytes;
  const [oldest] = await eventsAfter(db, id, 0, { limit: 1, bytes: 1 });
  if (oldest === undefined || (!isTooLarge && oldest.at >= dueBefore)) return undefined;
  const rows = await eventsAfter(db, id, 0, batch);
  const { events, bytes } = takeDue(rows, {
    firstNeededId: await readFirstNeededId(db, id),
    dueBefore,
    excess: isTooLarge ? stored - eventBytes * shortenedShare : 0,
  });
  const [first, ...others] = events;
  if (first === undefined) return undefined;
  // All events of the batch are due, so there may be more.
  const hasMore = events.length === rows.length;
  const isDue = isTooLarge || hasMore || now - (cut?.at ?? 0) > partialMs;
  // The event about the last archive alone is not worth another archive.
  const isWorthwhile = events.some(({ type }) => type !== "events.archived");
  if (!isDue || !isWorthwhile) return undefined;
  return { events: [first, ...others], bytes, hasMore };
}

/** `excess`: at least so many bytes are taken, also of events that are not old enough. */
function takeDue(
  rows: readonly EventRow[],
  { firstNeededId, dueBefore, excess }: { firstNeededId: number; dueBefore: number; excess: number },
): { events: EventRow[]; bytes: number } {
  const events: EventRow[] = [];
  let bytes = 0;
  for (const event of rows) {
    if (event.id >= firstNeededId || (event.at >= dueBefore && bytes >= excess)) break;
    bytes += sizeOfEvent(event);
    events.push(event);
  }
  return { events, bytes };
}

/** Records the archive, and deletes its events. Throws conflict if they changed since they were read. */
async function cutOff(
  tx: Transaction,
  { id }: ChainName,
  { header, signature, file }: Archive,
  archivedBytes: number,
  now: number,
): Promise<void> {
  const { first, last, events } = header;
  const after: Cut = { archive: header, signature, file, archived_bytes: archivedBytes };
  const subject = `events/${first}-${last}`;
  await record(tx, { orgId: id, at: now, type: "events.archived", actor: ourselves, subject, after });
  const isNeeded = (await readFirstNeededId(tx, id)) <= last;
  if (isNeeded || (await deleteEvents(tx, id, [first, last])) !== events) {
    throw new AppError(
      "conflict",
      `Events ${first} to ${last} changed while they were archived; none was deleted`,
    );
  }
}

/** The id of the first event that a webhook still has to send; Infinity if there is none. */
async function readFirstNeededId(reader: Reader, orgId: number | null): Promise<number> {
  if (orgId === null) return Infinity;
  return (await queryOne(reader, lowestId, lowestNeeded, [orgId]))?.n ?? Infinity;
}

const lowestId = computed({ n: integerOrNull() });
const lowestNeeded = `SELECT min(id) AS n FROM (
  SELECT min(e.id) AS id FROM events e WHERE e.org_id = $1
    AND e.id > (SELECT min(seen_event_id) FROM webhooks WHERE org_id = $1 AND deleted_at IS NULL)
  UNION ALL SELECT min(d.event_id) FROM deliveries d JOIN webhooks w ON w.id = d.webhook_id
    WHERE w.org_id = $1 AND d.next_at IS NOT NULL) needed`;
