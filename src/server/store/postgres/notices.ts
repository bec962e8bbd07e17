// Notices between the servers on one PostgreSQL database. Rows that were missed while a connection was down are read later,
// so none is lost.

import type { Reader } from "../database.ts";
import {
  isKnown,
  newestNoticeSql,
  noticePick,
  noticesAfterSql,
  parseNotice,
  type Notice,
} from "../notices.ts";
import { computed, integer, queryAll, queryNumber } from "../table.ts";

/** Maximum delay after a missed notification. */
const lookAtLeastEveryMs = 2000;

/**
 * The bell wakes the readers in other processes: calls `notify` after `ring`, one call at a time. A call that fails delays them
 * until their next look.
 */
export function makeBell(notify: () => Promise<void>): { ring(): void; stop(): Promise<void> } {
  let ringing: Promise<void> | undefined;
  let hasRung = false;
  const notifyAll = async () => {
    while (hasRung) {
      hasRung = false;
      await notify().catch(() => undefined);
    }
    ringing = undefined;
  };
  return {
    ring() {
      hasRung = true;
      ringing ??= notifyAll();
    },
    stop: async () => ringing,
  };
}

/** Maximum missing ids that are looked for: more than the transactions of all replicas hold back. */
const maxGaps = 1000;

const withSnapshot = computed({ xmin: integer(), isKept: integer() });
/**
 * $1: the newest id that was read, $3: when that notice was created. $2: missing ids below it, as JSON. Without notices, one row
 * without an id. `xmin`: all transactions with a lower number have ended, and what they committed is in this answer. `is_kept`: the
 * database has the newest notice that was read. A standby may not have it yet.
 */
const readSql = `SELECT n.id, n.channel, n.payload, n.created_at,
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
    CASE WHEN CAST($1 AS BIGINT) = 0 OR pg_is_in_recovery() OR EXISTS (SELECT 1 FROM notices WHERE id = $1 AND created_at = $3)
      THEN 1 ELSE 0 END AS is_kept
  FROM (SELECT 1) one LEFT JOIN (
    SELECT ${noticePick.select()} FROM notices WHERE id > $1
    UNION ALL SELECT ${noticePick.select()} FROM notices
      WHERE id IN (SELECT value::bigint FROM json_array_elements_text(CAST($2 AS TEXT)::json))) n ON true
  ORDER BY n.id`;
const transactionNumber = "SELECT pg_current_xact_id()::text::bigint AS n";
/** In place of the number of a transaction that was not taken yet. */
const notTaken = 0;

/**
 * Reads each notice of PostgreSQL once. Ids are assigned before the commit, so a lower id may appear after a higher one.
 * A missing id is looked for until every transaction that might hold it has ended. Such a transaction took its number
 * before the id (lockOf in postgres.ts), so its number is lower than one that is taken when the id is missing.
 */
export async function makeNoticeReader(reader: Reader) {
  /** The newest id that was read, and when that notice was created, ms. */
  let newestId = await queryNumber(reader, newestNoticeSql);
  let newestAt = 0;
  /** By missing id, the number of a transaction (or `notTaken`): once all lower ones have ended, the id will not appear. */
  const gaps = new Map<number, number>();
  const noteRead = (found: readonly { id: number; createdAt: number }[]) => {
    for (const { id, createdAt } of found) {
      if (gaps.delete(id)) continue;
      for (let gap = Math.max(newestId + 1, id - maxGaps); gap < id; gap++) gaps.set(gap, notTaken);
      if (id > newestId) [newestId, newestAt] = [id, createdAt];
    }
  };
  // A transaction that began before this process may hold an id below the newest.
  newestId = Math.max(0, newestId - maxGaps);
  noteRead(await queryAll(reader, noticePick, noticesAfterSql, [newestId]));

  return {
    /** The new notices, and whether the database still has the newest one that was read before. */
    async read(): Promise<{ found: ReturnType<typeof parseNotice>[]; isKept: boolean }> {
      const rows = await reader.all(readSql, [newestId, JSON.stringify([...gaps.keys()]), newestAt]);
      const found = rows.filter((row) => row["id"] !== null).map(parseNotice);
      const { xmin, isKept } = withSnapshot.parse(rows[0] ?? {});
      noteRead(found);
      for (const [id, number] of gaps) if (number !== notTaken && number <= xmin) gaps.delete(id);
      return { found, isKept: isKept === 1 };
    },
    /** Takes a number for the ids that are missing now, so that the search for them ends. */
    async boundGaps(): Promise<void> {
      const unbounded = [...gaps.keys()].filter((id) => gaps.get(id) === notTaken);
      if (unbounded.length === 0) return;
      const number = await queryNumber(reader, transactionNumber);
      for (const id of unbounded) if (gaps.has(id)) gaps.set(id, number);
    },
    /** How many ids are looked for. */
    missing: () => gaps.size,
    /** No notice with this id is found any more. */
    isPast: (id: number) => id < newestId - maxGaps && !gaps.has(id),
  };
}

/**
 * Passes on each notice that another process left. `subscribe` rings when a process commits, and whenever a
 * bell may have been missed. `keepOwn` takes the ids of this process's own notices, before their commit. `lookedAt` is
 * the time of `performance.now()` when the last complete look began. `rewound` is called when the database has lost what was read,
 * or deleted it because this process did not look for a day. What is kept in memory may be wrong then.
 */
export async function watchNotices(
  reader: Reader,
  { tell, rewound }: { tell(notices: readonly Notice[]): void; rewound(): void },
  subscribe: (ring: () => void) => Promise<void>,
): Promise<{ keepOwn(id: number): void; lookedAt(): number; stop(): Promise<void> }> {
  /** Ids of this process's own notices: its listeners have been called already. */
  const own = new Set<number>();
  const notices = await makeNoticeReader(reader);
  let lookedAt = performance.now();
  let looking: Promise<void> | undefined;
  let hasRung = false;

  const look = async () => {
    do {
      hasRung = false;
      const begun = performance.now();
      const { found, isKept } = await notices.read();
      if (!isKept) rewound();
      tell(found.filter(({ id }) => !own.delete(id)).filter(isKnown));
      // What is left are ids of own transactions that failed.
      for (const id of own) if (notices.isPast(id)) own.delete(id);
      lookedAt = begun;
      await notices.boundGaps();
    } while (hasRung);
  };
  const ring = () => {
    hasRung = true;
    // A failed look is not retried here: the timer, and the next subscription, look again.
    looking ??= look()
      .catch(() => undefined)
      .finally(() => (looking = undefined));
  };
  await subscribe(ring);
  const timer = setInterval(ring, lookAtLeastEveryMs);
  timer.unref();
  return {
    keepOwn: (id) => void own.add(id),
    lookedAt: () => lookedAt,
    async stop() {
      clearInterval(timer);
      await looking;
    },
  };
}
