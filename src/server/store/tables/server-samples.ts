// What each server did in the last minutes, for the staff's page of servers.

import { integer, integerOrNull, table, text } from "../table.ts";

export const serverSamples = table(
  "server_samples",
  {
    /** The process: `replicas.id`. The host is what remains after a restart. */
    serverId: text(),
    /** The end of the time that the row is about, ms. */
    at: integer(),
    host: text(),
    requests: integer(),
    /** Answers with a status of 500 or more. */
    errors: integer(),
    checkins: integer(),
    /** Null without requests. */
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
