// The servers on one PostgreSQL database know each other by rows that they renew. A server that does not fit the
// others is refused at its start: another secret key, a wrong clock. migrations.ts refuses versions that are too far
// apart.

import { AppError } from "../../base/errors.ts";
import { keyIdOfEnvelope, secretKeyIds, type SecretKeys } from "../../pki/secrets.ts";
import type { LastError } from "../http/remember-errors.ts";
import { databaseClock, type Database, type Transaction } from "./database.ts";
import { readMeta } from "./meta.ts";
import { newestVersion } from "./migrations.ts";
import { computed, integer, queryAll, queryNumber, text } from "./table.ts";
import { aliveMs, liveReplicas, renewReplicaEveryMs, replicas, type ReplicaRow } from "./tables/servers.ts";

/** A replica with a wrong clock ends sessions early and signs certificates that nodes do not accept yet. */
const maxClockErrorMs = 5000;
/** How far the clocks of two servers may be apart. */
export const maxClockGapMs = 2 * maxClockErrorMs;
/** A row that is not renewed is deleted after this time. */
const keptMs = 3_600_000;

/** Throws bad_configuration for a server that does not fit to the database and the servers that use it. */
export async function checkReplica(
  db: Database,
  { secretKey, now }: { secretKey: SecretKeys; now(): number },
): Promise<void> {
  if (db.dialect === "sqlite") return;
  await checkClock(db, now);
  await checkKeys(db, secretKeyIds(secretKey));
}

async function checkClock(db: Database, now: () => number): Promise<void> {
  const before = now();
  const databaseNow = await queryNumber(db, `SELECT ${databaseClock} AS n`);
  const ahead = aheadOf(databaseNow, before, now());
  if (Math.abs(ahead) <= maxClockErrorMs) return;
  const [seconds, where] = [(Math.abs(ahead) / 1000).toFixed(1), ahead > 0 ? "ahead of" : "behind"];
  throw new AppError(
    "bad_configuration",
    `The clock of this server is ${seconds} seconds ${where} the clock of the database; at most ${maxClockErrorMs / 1000} are allowed`,
    {
      hint: "Synchronize the clocks of all servers, for example with `timedatectl set-ntp true`, and start again.",
    },
  );
}

/**
 * By how many ms the clock of this machine is ahead of the database's; negative: behind. `before` and `after` are its times around
 * the question: the database may have answered at any moment between, so a slow answer is no error of the clock.
 */
export function aheadOf(databaseNow: number, before: number, after: number): number {
  if (before > databaseNow) return before - databaseNow;
  return after < databaseNow ? after - databaseNow : 0;
}

/** Every server must be able to open what the others seal. `own`: ids of its keys. The first of a server's keys seals. */
async function checkKeys(db: Database, own: readonly string[]): Promise<void> {
  const refuse = (what: string) =>
    new AppError("bad_configuration", what, {
      hint: "Copy secret.key from a server that runs to this one, with mode 0600, and start again.",
    });
  // Fails for another secret key: the first server has sealed this shared secret.
  const sealed = await readMeta(db, "jwt_key");
  if (sealed !== undefined && !own.includes(keyIdOfEnvelope(sealed))) {
    throw refuse("The secret.key of this server is not the one of this database");
  }
  for (const { host, keyIds } of await liveReplicas(db)) {
    const theirs = keyIds.split(" ");
    if (!own.includes(theirs[0] ?? "") || !theirs.includes(own[0] ?? "")) {
      throw refuse(`The secret.key of this server and the one of the server on ${host} differ`);
    }
  }
}

/** `now`: by the clock of the machine, ms. */
export type Self = { id: string; host: string; version: string; now(): number; secretKey: SecretKeys };

const noteSql = `INSERT INTO replicas (id, host, version, schema_version, key_ids, started_at, seen_at,
    clock_ahead_ms, notices_behind_ms, last_error, last_error_at)
  VALUES ($1, $2, $3, $4, $5, ${databaseClock}, ${databaseClock}, $6 - ${databaseClock}, $7, $8, $9)
  ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, key_ids = excluded.key_ids,
    clock_ahead_ms = excluded.clock_ahead_ms, notices_behind_ms = excluded.notices_behind_ms,
    last_error = excluded.last_error, last_error_at = excluded.last_error_at`;

/** Renews the row of this replica. */
export async function noteReplica(
  tx: Transaction,
  { id, host, version, now, secretKey }: Self,
  { noticesBehindMs, lastError }: { noticesBehindMs: number; lastError: LastError | undefined },
): Promise<void> {
  const keys = secretKeyIds(secretKey).join(" ");
  const error = [lastError?.text ?? null, lastError?.at ?? null];
  await tx.run(noteSql, [id, host, version, newestVersion, keys, now(), noticesBehindMs, ...error]);
  await tx.run(`DELETE FROM replicas WHERE seen_at < ${databaseClock} - $1`, [keptMs]);
}

/** The replica stops. */
export async function forgetReplica(db: Database, id: string): Promise<void> {
  await db.writeFor("rows", (tx) => replicas.delete(tx, { id }));
}

const heldLease = computed({ name: text(), holder: text() });
const seenAgo = computed({ seenAgoMs: integer() });

export type ReplicaReport = ReplicaRow & { seenAgoMs: number; isRunning: boolean; leases: string[] };

/** All known replicas, those that run first. None with SQLite. */
export async function listReplicas(db: Database): Promise<ReplicaReport[]> {
  if (db.dialect === "sqlite") return [];
  const sql = `SELECT name, holder FROM leases WHERE expires_at > ${databaseClock} ORDER BY name`;
  const leases = await queryAll(db, heldLease, sql);
  const rows = await db.all(
    `SELECT ${replicas.select()}, ${databaseClock} - seen_at AS seen_ago_ms FROM replicas ORDER BY started_at, id`,
  );
  const reports = rows.map((row) => {
    const replica = replicas.parse(row);
    const { seenAgoMs } = seenAgo.parse(row);
    const own = leases.filter(({ holder }) => holder === replica.id).map(({ name }) => name);
    // A replica that is suspended cannot say that it falls behind.
    const noticesBehindMs = replica.noticesBehindMs + Math.max(0, seenAgoMs - renewReplicaEveryMs);
    return { ...replica, noticesBehindMs, seenAgoMs, isRunning: seenAgoMs < aliveMs, leases: own };
  });
  return reports.toSorted((a, b) => Number(b.isRunning) - Number(a.isRunning));
}
