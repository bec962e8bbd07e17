// Notices tell the processes on one database of each other's commits. A writer leaves rows in `notices`; each database reads
// them in its own way (postgres/notices.ts, sqlite/notices.ts), and calls the listeners here.

import type { Channel, Database } from "./database.ts";
import { notices as noticeTable } from "./tables/servers.ts";

export type Notice = { channel: Channel; payload: string };

export const noticePick = noticeTable.pick("id", "channel", "payload", "createdAt");
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
      const set = listeners.getOrInsertComputed(channel, () => new Set()).add(listener);
      return () => void set.delete(listener);
    },
    tell(committed) {
      for (const { channel, payload } of committed) {
        for (const listener of listeners.get(channel) ?? []) listener(payload);
      }
    },
  };
}
