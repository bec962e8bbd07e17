// The control plane itself: the servers on one database, their warnings about themselves, and health checks.

import * as v from "valibot";
import { foreignText } from "../base/text.ts";
import { endpoint } from "./endpoint.ts";
import { since, Text, Time, word } from "./values.ts";

const warningCodes = [
  "clock_doubted",
  "clock_doubted_by_nodes",
  "database_damaged",
  "disk_filling",
  "disk_full",
  "tls_certificate_ending",
] as const;
const WarningCode = word(warningCodes);
export const Warning = v.object({
  code: WarningCode,
  text: Text,
  /** The remedy. */
  hint: Text,
});
export type Warning = v.InferOutput<typeof Warning>;

const Server = v.object({
  id: Text,
  host: Text,
  version: Text,
  running: v.boolean(),
  started_at: Time,
  last_seen_at: Time,
  /** The background loops that this server runs. */
  leases: v.array(Text),
  /** How far its clock is ahead of the database's. */
  clock_ahead_ms: v.number(),
  /** How late it reads the changes of other servers. */
  notices_behind_ms: v.number(),
  last_error: v.nullable(Text),
  last_error_at: v.nullable(Time),
});
export type Server = v.InferOutput<typeof Server>;

const Servers = v.object({
  database: word(["sqlite", "postgres"]),
  /** Null before the first backup by `agent admin backup`. */
  last_backup_at: v.nullable(Time),
  servers: v.array(Server),
  /** Warnings of the answering server about itself. */
  warnings: v.array(Warning),
  /** The server that sends this answer. */
  answering: v.object({ host: Text, version: Text, started_at: Time }),
});

const ServerHistory = v.object({
  /** Each point stands for so many seconds. */
  every_s: v.number(),
  hosts: v.array(
    v.object({
      host: Text,
      points: v.array(
        v.object({
          at: Time,
          requests: v.number(),
          /** Answers with a status of 500 or more. */
          errors: v.number(),
          checkins: v.number(),
          /** 99 of 100 answers took at most this; held check-ins are not counted. Null without requests. */
          p99_ms: v.nullable(v.number()),
          /** The most check-ins that waited for news at the same time. */
          waiting: v.number(),
          /** Maximum of one process. */
          memory_bytes: v.number(),
        }),
      ),
    }),
  ),
});
export type ServerHistory = v.InferOutput<typeof ServerHistory>;

const ClockConfirmation = v.strictObject({
  time: v.pipe(
    foreignText(32),
    v.isoTimestamp(),
    v.description("The time of the caller's clock. Refused if the server's differs by more than a minute."),
  ),
});

const Health = v.object({ status: v.literal("ok") });
/**
 * Warnings do not make a server unready, because revocations must still reach the nodes. Exceptions are a full disk and a damaged
 * database of SQLite. The texts of the warnings: `GET /api/servers/`.
 */
const Readiness = v.object({ ...Health.entries, warnings: since("0.2.0", v.array(WarningCode)) });

export const healthApi = {
  alive: endpoint({
    name: "healthz",
    method: "GET",
    path: "/healthz",
    access: "public",
    summary: "Whether the process answers",
    answers: { 200: { description: "The process answers", schema: Health } },
  }),
  ready: endpoint({
    name: "readyz",
    method: "GET",
    path: "/readyz",
    access: "public",
    summary:
      "Whether the database can be read and written, and what an administrator should look at: clock_doubted, clock_doubted_by_nodes, disk_filling, disk_full, database_damaged, tls_certificate_ending. With SQLite it answers storage_unavailable while the disk is full, and once the database was found damaged",
    answers: { 200: { description: "The database works", schema: Readiness } },
  }),
};

export const serversApi = {
  history: endpoint({
    name: "servers_history_retrieve",
    method: "GET",
    path: "/api/servers/history/",
    access: "staff",
    summary:
      "What each server did over the last day, in steps of five minutes: requests, errors, check-ins, times and memory",
    answers: { 200: { description: "Points by host", schema: ServerHistory } },
  }),
  confirmClock: endpoint({
    name: "servers_clock_create",
    method: "POST",
    path: "/api/servers/clock/",
    access: "staff",
    summary:
      "Confirm the clock of this server after a jump: its certificates are signed again, by the time that it shows",
    fresh: true,
    body: ClockConfirmation,
    answers: { 200: { description: "The time from now on", schema: v.object({ clock: Time }) } },
    errors: ["conflict"],
  }),
  list: endpoint({
    name: "servers_list",
    method: "GET",
    path: "/api/servers/",
    access: "staff",
    summary:
      "The servers on this PostgreSQL database, and which runs each background loop. With SQLite there is one server, and `servers` is empty. When the last backup was made, which server answers, and what it knows to be wrong with itself",
    answers: { 200: { description: "The servers", schema: Servers } },
  }),
};
