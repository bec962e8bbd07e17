// What servers share through the database: values by key (`meta`), who runs each loop, wake-ups, the replicas, and samples
// of their load.

import {
  table,
  text,
  integer,
  serial,
  integerOrNull,
  queryAll,
  textOrNull,
  type TableRow,
} from "../table.ts";
import { databaseClock, type Reader } from "../database.ts";

export const meta = table("meta", { key: text("PRIMARY KEY"), value: text() });

/** Which replica runs each background loop. Only PostgreSQL has rows: one server at most uses a SQLite file. */
export const leases = table("leases", {
  name: text("PRIMARY KEY"),
  /** The id of a replica; "" before the first one. */
  holder: text(),
  /** Rises with each takeover. A write of a former holder carries a lower one. */
  fence: integer(),
  /** By the clock of the database, ms. */
  expiresAt: integer(),
});

/** What commits changed, for the memory of other processes: see store/notices.ts. */
export const notices = table("notices", {
  id: serial,
  channel: text(),
  payload: text(),
  createdAt: integer(),
});

/**
 * The servers on this PostgreSQL database, for `admin server list`, the metrics and the checks at a start. Times are by
 * the clock of the database, ms.
 */
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
  /** For how long it may have missed notices of other replicas, ms. */
  noticesBehindMs: integer(),
  lastError: textOrNull(),
  lastErrorAt: integerOrNull(),
});
export type ReplicaRow = TableRow<typeof replicas>;

/** How often a replica renews its row. */
export const renewReplicaEveryMs = 2500;
/** One that was not renewed, because it is suspended or disconnected, counts as running for this long. */
export const aliveMs = 20_000;

export function liveReplicas(reader: Reader): Promise<ReplicaRow[]> {
  const sql = `SELECT ${replicas.select()} FROM replicas WHERE seen_at > ${databaseClock} - ${aliveMs} ORDER BY host, id`;
  return queryAll(reader, replicas, sql);
}

/** Load of each server, minute by minute, for the staff's page of servers. */
export const serverSamples = table(
  "server_samples",
  {
    /** The process: `replicas.id`. The host is what remains after a restart. */
    serverId: text(),
    /** The end of the minute, ms. */
    at: integer(),
    host: text(),
    requests: integer(),
    /** Answers with a status of 500 or more. */
    errors: integer(),
    checkins: integer(),
    /** Null if there were no requests. */
    p99Ms: integerOrNull(),
    /** Check-ins that waited for news, at that moment. */
    waiting: integer(),
    memoryBytes: integer(),
  },
  {
    constraints: ["PRIMARY KEY (server_id, at)"],
    indexes: ["CREATE INDEX server_samples_at ON server_samples (at)"],
  },
);
