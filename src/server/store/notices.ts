// Notices tell the processes on one database of each other's commits. A writer leaves rows in `notices`; this file
// reads them and calls the listeners. Rows that were missed while a connection was down are read later, so none is
// lost.

import type { Channel, Database, Reader } from "./database.ts";
import { queryAll, queryNumber } from "./table.ts";
import { notices } from "./tables/notices.ts";

export type Notice = { channel: Channel; payload: string };

/** Finds a missed bell after this time at the latest. */
const lookAtLeastEveryMs = 2000;

const columns = notices.pick("id", "channel", "payload");
export const newestNoticeSql = "SELECT coalesce(max(id), 0) AS n FROM notices";
export const noticesAfterSql = `SELECT ${columns.select()} FROM notices WHERE id > $1 ORDER BY id`;
export const parseNotice = columns.parse;

/** The channels that this version knows. A newer process may use more. */
export function isKnown<T extends { channel: string }>(notice: T): notice is T & { channel: Channel } {
  const { channel } = notice;
  return channel === "auth" || channel === "organization" || channel === "node";
}

/** The listeners of this process. `tell` calls them. */
export function makeListeners(): Pick<Database, "listen"> & { tell(notices: readonly Notice[]): void } {
  const listeners = new Map<Channel, Set<(payload: string) => void>>();
  return {
    listen(channel, listener) {
      const set = listeners.get(channel) ?? new Set();
      listeners.set(channel, set.add(listener));
      return () => void set.delete(listener);
    },
    tell(told) {
      for (const { channel, payload } of told) {
        for (const listener of listeners.get(channel) ?? []) listener(payload);
      }
    },
  };
}

/**
 * PostgreSQL: passes on each notice that another process left. `subscribe` rings when a process commits, and whenever a
 * bell may have been missed. `keepOwn` takes the ids of this process's own notices, before their commit.
 */
export async function watchNotices(
  reader: Reader,
  tell: (notices: readonly Notice[]) => void,
  subscribe: (ring: () => void) => Promise<() => Promise<void>>,
): Promise<{ keepOwn(id: number): void; stop(): Promise<void> }> {
  const own = new Set<number>();
  let last = await queryNumber(reader, newestNoticeSql);
  let looking: Promise<void> | undefined;
  let hasRung = false;

  const look = async () => {
    do {
      hasRung = false;
      const found = await queryAll(reader, columns, noticesAfterSql, [last]);
      last = found.at(-1)?.id ?? last;
      tell(found.filter(({ id }) => !own.has(id)).filter(isKnown));
      for (const id of own) if (id <= last) own.delete(id);
    } while (hasRung);
  };
  const ring = () => {
    hasRung = true;
    // If the database does not answer, the timer and the next subscription look again.
    looking ??= look()
      .catch(() => undefined)
      .finally(() => (looking = undefined));
  };
  const unsubscribe = await subscribe(ring);
  const timer = setInterval(ring, lookAtLeastEveryMs);
  timer.unref();
  return {
    keepOwn: (id) => void own.add(id),
    async stop() {
      clearInterval(timer);
      await unsubscribe().catch(() => undefined);
      await looking;
    },
  };
}
