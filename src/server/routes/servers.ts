// The route of the servers that work on one database.

import { hostname } from "node:os";
import * as v from "valibot";
import { buildInfo } from "../../build-info.ts";
import { formatTime } from "../../duration.ts";
import { AppError } from "../../errors.ts";
import { actorOf, record } from "../audit/record.ts";
import { body, nothing, route, type Route } from "../http/route.ts";
import { findWarnings, Warning } from "../metrics/warnings.ts";
import { ServerHistory, serverHistory } from "../metrics/server-history.ts";
import type { Services } from "../services.ts";
import { lastBackupAt } from "../store/meta.ts";
import { listReplicas, type ReplicaReport } from "../store/replicas.ts";
import { foreignText } from "../../text.ts";

const Server = v.object({
  id: v.string(),
  host: v.string(),
  version: v.string(),
  running: v.boolean(),
  started_at: v.string(),
  last_seen_at: v.string(),
  /** The background loops that this server runs. */
  leases: v.array(v.string()),
  clock_ahead_ms: v.number(),
  notices_behind_ms: v.number(),
  last_error: v.nullable(v.string()),
  last_error_at: v.nullable(v.string()),
});
const Servers = v.object({
  database: v.picklist(["sqlite", "postgres"]),
  /** Null before the first backup by `agent admin backup`. */
  last_backup_at: v.nullable(v.string()),
  servers: v.array(Server),
  /** What the server that sends this answer knows to be wrong with itself. */
  warnings: v.array(Warning),
  /** The server that sends this answer. */
  answering: v.object({ host: v.string(), version: v.string(), started_at: v.string() }),
});

const maxAheadMs = 60_000;

const ClockConfirmation = v.strictObject({
  time: v.pipe(
    foreignText(32),
    v.isoTimestamp(),
    v.description("The time of the caller's clock. Refused if the server's differs by more than a minute."),
  ),
});
const ConfirmedClock = v.object({ clock: v.string() });

export function serverRoutes(services: Services): Route[] {
  const { db, system, clock } = services;
  const answering = {
    host: hostname(),
    version: buildInfo.version,
    started_at: formatTime(system.now()),
  };
  return [
    route({
      method: "GET",
      path: "/api/servers/history/",
      access: "staff",
      name: "servers_history_retrieve",
      summary:
        "What each server did over the last day, in steps of five minutes: requests, errors, check-ins, times and memory",
      takes: nothing,
      answers: { 200: { description: "Points by host", schema: ServerHistory } },
      handle: async () => ({ body: await serverHistory(db, system.now()) }),
    }),
    route({
      method: "POST",
      path: "/api/servers/clock/",
      access: "staff",
      fresh: true,
      name: "servers_clock_create",
      summary:
        "Confirm the clock of this server after a jump: its certificates are signed again, by the time that it shows",
      takes: body(ClockConfirmation),
      answers: { 200: { description: "The time from now on", schema: ConfirmedClock } },
      errors: ["conflict"],
      async handle(call, { time }) {
        const [own, theirs] = [clock.wall(), Date.parse(time)];
        if (Math.abs(own - theirs) > maxAheadMs) throw otherClock(own, theirs);
        const doubt = clock.doubt();
        await db.write(async (tx) => {
          await clock.confirm(tx);
          await record(tx, {
            orgId: null,
            at: own,
            type: "server.clock_confirmed",
            actor: actorOf(call),
            subject: `server/${hostname()}`,
            after: {
              clock: formatTime(own),
              ...(doubt === undefined ? {} : { expected: formatTime(doubt.expected) }),
            },
          });
        });
        return { body: { clock: formatTime(own) } };
      },
    }),
    route({
      method: "GET",
      path: "/api/servers/",
      access: "staff",
      name: "servers_list",
      summary:
        "The servers on this PostgreSQL database, and which runs each background loop. One server at most uses a SQLite file; it is not listed. When the last backup was made, which server answers, and what it knows to be wrong with itself",
      takes: nothing,
      answers: { 200: { description: "The servers", schema: Servers } },
      async handle() {
        const backup = await lastBackupAt(db);
        return {
          body: {
            database: db.dialect,
            last_backup_at: backup === undefined ? null : formatTime(backup),
            servers: (await listReplicas(db)).map(showServer),
            answering,
            warnings: findWarnings(services),
          },
        };
      },
    }),
  ];
}

function otherClock(own: number, theirs: number): AppError {
  return new AppError(
    "conflict",
    `The clock of this server shows ${formatTime(own)}, and yours ${formatTime(theirs)}. Nothing was changed.`,
    { hint: "Set the wrong one right, for example with `timedatectl set-ntp true`, and try again." },
  );
}

function showServer(each: ReplicaReport): v.InferOutput<typeof Server> {
  return {
    id: each.id,
    host: each.host,
    version: each.version,
    running: each.isRunning,
    started_at: formatTime(each.startedAt),
    last_seen_at: formatTime(each.seenAt),
    leases: [...each.leases],
    clock_ahead_ms: each.clockAheadMs,
    notices_behind_ms: each.noticesBehindMs,
    last_error: each.lastError,
    last_error_at: each.lastErrorAt === null ? null : formatTime(each.lastErrorAt),
  };
}
