// The servers on this PostgreSQL database, for `admin server list`, the metrics and the checks at a start. Times are by
// the clock of the database, ms.

import { databaseClock, type Reader } from "../database.ts";
import { integer, integerOrNull, queryAll, table, text, textOrNull, type TableRow } from "../table.ts";

export const replicas = table("replicas", {
  id: text("PRIMARY KEY"),
  host: text(),
  version: text(),
  /** The newest migration that the server knows. */
  schemaVersion: integer(),
  /** The ids of its secret keys, separated by spaces. The first one encrypts. */
  keyIds: text(),
  startedAt: integer(),
  seenAt: integer(),
  /** How far its clock is ahead of the database's, ms. */
  clockAheadMs: integer(),
  /** Since when it may lack notices of other replicas, ms. */
  noticesBehindMs: integer(),
  lastError: textOrNull(),
  lastErrorAt: integerOrNull(),
});
export type ReplicaRow = TableRow<typeof replicas>;

/** A replica renews its row this often. */
export const renewEveryMs = 2500;
/** A suspended or disconnected one counts as running for this long. */
export const aliveMs = 20_000;

export function liveReplicas(reader: Pick<Reader, "all">): Promise<ReplicaRow[]> {
  const sql = `SELECT ${replicas.select()} FROM replicas WHERE seen_at > ${databaseClock} - ${aliveMs} ORDER BY host, id`;
  return queryAll(reader, replicas, sql);
}
