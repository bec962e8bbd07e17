// Notices tell the processes on one database of each other's commits. A writer leaves rows in `notices`; this file
// reads them and calls the listeners. Rows that were missed while a connection was down are read later, so none is
// lost.

import type { Channel, Database, Reader } from "./database.ts";
import { computed, integer, queryAll, queryNumber } from "./table.ts";
import { notices as noticeTable } from "./tables/servers.ts";

export type Notice = { channel: Channel; payload: string };

/** Maximum delay after a missed notification. */
const lookAtLeastEveryMs = 2000;

const noticePick = noticeTable.pick("id", "channel", "payload", "createdAt");
export const newestNoticeSql = "SELECT coalesce(max(id), 0) AS n FROM notices";
export const noticesAfterSql = `SELECT ${noticePick.select()} FROM notices WHERE id > $1 ORDER BY id`;
export const parseNotice = noticePick.parse;

const channels: ReadonlySet<string> = new Set<Channel>([
  "auth",
  "organization",
  "node",
  "throttle",
  "names",
  "drill",
]);

/** The channels that this version knows. A newer process may use more. */
export function isKnown<T extends { channel: string }>(notice: T): notice is T & { channel: Channel } {
  const { channel } = notice;
  return channels.has(channel);
}

/** The listeners of this process. `tell` calls those of each notice's channel. */
export function makeListeners(): Pick<Database, "listen"> & { tell(notices: readonly Notice[]): void } {
  const listeners = new Map<Channel, Set<(payload: string) => void>>();
  return {
    listen(channel, listener) {
      const set = listeners.get(channel) ?? new Set();
      listeners.set(channel, set.add(listener));
      return () => void set.delete(listener);
    },
    tell(committed) {
      for (const { channel, payload } of committed) {
        for (const listener of listeners.get(channel) ?? []) listener(payload);
      }
    },
  };
}

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
 * $1: the newest id that was read, $3: its time. $2: missing ids below it, as JSON. Without notices, one row without an
 * id. `xmin`: all transactions with a lower number have ended, and what they committed is in this answer. `is_kept`: the
 * database has what was read. A standby may not have it yet.
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

/**
 * Reads each notice of PostgreSQL once. Ids are assigned before the commit, so a lower id may appear after a higher one.
 * A missing id is looked for until every transaction that might hold it has ended. Such a transaction took its number
 * before the id (lockOf in postgres.ts), so its number is lower than one that is taken when the id is missing.
 */
export async function makeNoticeReader(reader: Reader) {
  /** The newest id that was read, and the time of that notice. */
  let last = await queryNumber(reader, newestNoticeSql);
  let lastAt = 0;
  /** By missing id: all transactions with a number below this value must end; 0: no number is taken yet. */
  const gaps = new Map<number, number>();
  const noteGaps = (from: number, to: number) => {
    for (let id = Math.max(from, to - maxGaps); id < to; id++) gaps.set(id, 0);
  };
  const noteRead = (found: readonly { id: number; createdAt: number }[]) => {
    for (const { id, createdAt } of found) {
      if (!gaps.delete(id)) noteGaps(last + 1, id);
      if (id > last) [last, lastAt] = [id, createdAt];
    }
  };
  // A transaction that began before this process may hold an id below the newest.
  last = Math.max(0, last - maxGaps);
  noteRead(await queryAll(reader, noticePick, noticesAfterSql, [last]));

  return {
    /** The new notices, and whether the database still has the newest one that was read before. */
    async read(): Promise<{ found: ReturnType<typeof parseNotice>[]; isKept: boolean }> {
      const rows = await reader.all(readSql, [last, JSON.stringify([...gaps.keys()]), lastAt]);
      const found = rows.filter((row) => row["id"] !== null).map(parseNotice);
      const { xmin, isKept } = withSnapshot.parse(rows[0] ?? {});
      noteRead(found);
      for (const [id, end] of gaps) if (end > 0 && end <= xmin) gaps.delete(id);
      return { found, isKept: isKept === 1 };
    },
    /** Bounds the search for the ids that are missing now. */
    async boundGaps(): Promise<void> {
      const unbounded = [...gaps.keys()].filter((id) => gaps.get(id) === 0);
      if (unbounded.length === 0) return;
      const end = await queryNumber(reader, transactionNumber);
      for (const id of unbounded) if (gaps.has(id)) gaps.set(id, end);
    },
    /** How many ids are looked for. */
    missing: () => gaps.size,
    /** No notice with this id is found any more. */
    isPast: (id: number) => id < last - maxGaps && !gaps.has(id),
  };
}

/**
 * PostgreSQL: passes on each notice that another process left. `subscribe` rings when a process commits, and whenever a
 * bell may have been missed. `keepOwn` takes the ids of this process's own notices, before their commit. `lookedAt` is
 * the time of `performance.now()` when the last complete look began. `rewound`: the database has lost what was read, or
 * deleted it because this process did not look for a day. What is kept in memory may be wrong then.
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
      // Ids of own transactions that failed.
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
