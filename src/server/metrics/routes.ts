// Handlers of src/api/servers.ts.

import { hostname } from "node:os";
import type { healthApi, Server, serversApi } from "../../api/servers.ts";
import { buildInfo } from "../../build-info.ts";
import { formatTime, timeOrNull } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import { actorOf, record } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import { requireStaff } from "../require-role.ts";
import type { Services } from "../services.ts";
import { lastBackupAt, setMeta } from "../store/meta.ts";
import { listReplicas, type ReplicaReport } from "../store/replicas.ts";
import { serverHistory } from "./server-history.ts";

/** Each check writes to the disk and the route is public: all requests within this time share one check. */
const checkEveryMs = 1000;
/** How far the clock of the confirming user may differ. */
const maxAheadMs = 60_000;

export function healthHandlers(services: Services): Handlers<typeof healthApi> {
  const { db, system } = services;
  let checkedAt = Number.NEGATIVE_INFINITY;
  /** The write of the last check. */
  let check: Promise<unknown> = Promise.resolve();
  const writable = () => {
    const now = performance.now();
    if (now - checkedAt >= checkEveryMs) {
      checkedAt = now;
      // A transaction that changes nothing would not detect a full disk.
      check = db.writeFor("rows", (tx) => setMeta(tx, "ready", `${system.now()} ${now}`));
    }
    return check;
  };
  return {
    alive: () => ({ body: { status: "ok" } }),
    async ready() {
      await writable();
      const warnings = services.warnings();
      const broken = warnings.find(({ code }) => code === "database_damaged" || code === "disk_full");
      // A small change may still find room in the file. PostgreSQL is elsewhere, and the same for all servers: a proxy
      // would send its requests to none of them.
      if (broken !== undefined && db.dialect === "sqlite")
        throw new AppError("storage_unavailable", broken.text, { retryAfter: 5, hint: broken.hint });
      return { body: { status: "ok", warnings: warnings.map(({ code }) => code) } };
    },
  };
}

export function serverHandlers(services: Services): Handlers<typeof serversApi> {
  const { db, system, clock } = services;
  const answering = {
    host: hostname(),
    version: buildInfo.version,
    started_at: formatTime(system.now()),
  };
  return {
    history: async () => ({ body: await serverHistory(db, system.now()) }),
    async confirmClock(call, { time }) {
      const own = clock.wall();
      const theirs = Date.parse(time);
      if (Math.abs(own - theirs) > maxAheadMs) throw otherClock(own, theirs);
      const doubt = clock.doubt();
      await db.write(async (tx) => {
        await requireStaff(tx, actorOf(call));
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
    async list({ caller }) {
      // A command has examined nothing before, unlike a server.
      if (caller.kind === "operator") await db.examine(system);
      const backup = await lastBackupAt(db);
      return {
        body: {
          database: db.dialect,
          last_backup_at: backup === undefined ? null : formatTime(backup),
          servers: (await listReplicas(db)).map(showServer),
          answering,
          warnings: services.warnings(),
        },
      };
    },
  };
}

function otherClock(own: number, theirs: number): AppError {
  return new AppError(
    "conflict",
    `The clock of this server shows ${formatTime(own)}, and yours ${formatTime(theirs)}. Nothing was changed.`,
    { hint: "Set the wrong one right, for example with `timedatectl set-ntp true`, and try again." },
  );
}

function showServer(replica: ReplicaReport): Server {
  return {
    id: replica.id,
    host: replica.host,
    version: replica.version,
    running: replica.isRunning,
    started_at: formatTime(replica.startedAt),
    last_seen_at: formatTime(replica.seenAt),
    leases: [...replica.leases],
    clock_ahead_ms: replica.clockAheadMs,
    notices_behind_ms: replica.noticesBehindMs,
    last_error: replica.lastError,
    last_error_at: timeOrNull(replica.lastErrorAt),
  };
}
