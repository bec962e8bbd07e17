// Notices between the processes on one SQLite file: the admin commands leave them, the server passes them on.

import { SQLiteError } from "bun:sqlite";
import type { Transaction, Value } from "../database.ts";
import { isKnown, newestNoticeSql, noticesAfterSql, parseNotice, type Notice } from "../notices.ts";
import { notices as noticesTable } from "../tables/servers.ts";
import { isRow, rowOf, type Connection } from "./connection.ts";

/** Servers read several times a second: older notices have been read. */
const keptMs = 3_600_000;

export async function leaveNotices(tx: Transaction, notices: readonly Notice[], now: number): Promise<void> {
  for (const notice of notices) await noticesTable.insert(tx, { ...notice, createdAt: now });
  if (notices.length > 0) await tx.run("DELETE FROM notices WHERE created_at < $1", [now - keptMs]);
}

export type Watch = {
  /** Passes on what other processes left until now. False if the file cannot be read at this moment. */
  look(): boolean;
  stop(): void;
};

/** While there are no notices, each look costs one cheap pragma. */
export function watchOthers(
  connection: () => Connection,
  everyMs: number,
  tell: (notices: readonly Notice[]) => void,
): Watch {
  const firstValueOf = (sql: string) =>
    Object.values(rowOf(connection().prepare(sql).get()) ?? {})[0] ?? null;
  /** Of the last look. SQLite changes it with each commit of another connection. */
  let dataVersion: Value = null;
  /** The newest id that was read. */
  let last: Value = firstValueOf(newestNoticeSql);
  const look = () => {
    try {
      const presentVersion = firstValueOf("PRAGMA data_version");
      if (presentVersion === dataVersion) return true;
      const found = connection().prepare(noticesAfterSql).all(last).filter(isRow).map(parseNotice);
      dataVersion = presentVersion;
      last = found.at(-1)?.id ?? last;
      tell(found.filter(isKnown));
      return true;
    } catch (error) {
      // The file is busy or the disk fails. `dataVersion` is unchanged, so the next look reads them.
      if (!(error instanceof SQLiteError)) throw error;
      return false;
    }
  };
  const timer = setInterval(look, everyMs);
  timer.unref();
  return { look, stop: () => clearInterval(timer) };
}
