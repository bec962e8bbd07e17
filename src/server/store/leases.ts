// Leases: of all replicas on one PostgreSQL, one runs each background loop. A lease that its holder does not renew passes
// to another replica. Each takeover raises the fence, and each write of a loop checks the fence inside its transaction: a
// replica that was suspended and continues cannot write what its successor may have done already. With SQLite there is one
// server, and nothing to check.

import { messageOf } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import { databaseClock, type Database, type Transaction } from "./database.ts";
import { computed, integer, queryAll, queryOne } from "./table.ts";
import { leases, renewReplicaEveryMs } from "./tables/servers.ts";

/** The lease of one loop, as the loop sees it. */
export type Lease = {
  /** Call it before each turn: whether this replica runs the turn. */
  take(): boolean;
  /** The database for the turn. Its writes throw LeaseLost once another replica has the lease. */
  db: Database;
};

export type Leases = {
  /** Competes for the lease from now on. Call it before `start`. */
  of(name: string): Lease;
  start(): void;
  /** Lets other replicas take the leases at once. */
  stop(): Promise<void>;
};

/** Another replica runs the loop now. */
export class LeaseLost extends Error {
  constructor(name: string) {
    super(`Another replica has taken over: ${name}`);
    this.name = "LeaseLost";
  }
}

export type LeaseTimes = { leaseMs: number; renewEveryMs: number };
/**
 * A dead replica is noticed after both times together, 10.5 s. A replica that is suspended inside a transaction keeps
 * the lease's row until PostgreSQL ends that session, after 5 s (postgres.ts).
 */
const usualTimes: LeaseTimes = { leaseMs: 8000, renewEveryMs: renewReplicaEveryMs };

export type LeaseOptions = {
  db: Database;
  system: Pick<System, "sleep">;
  log: Pick<Log, "warn">;
  /** The id of this replica. */
  holder: string;
  /** Runs with each renewal, in its transaction. */
  alongside?(tx: Transaction): Promise<void>;
  times?: LeaseTimes;
};

export function makeLeases(options: LeaseOptions): Leases {
  return options.db.dialect === "sqlite" ? leasesOfOne(options.db) : competingLeases(options);
}

function leasesOfOne(db: Database): Leases {
  return {
    of: () => ({ take: () => true, db }),
    start: () => undefined,
    stop: async () => undefined,
  };
}

function competingLeases({ db, system, log, holder, alongside, times = usualTimes }: LeaseOptions): Leases {
  /** The names of the leases that this replica competes for. */
  const names: string[] = [];
  /** The leases of this replica and their fences, by the last renewal. */
  let held = new Map<string, number>();
  /** Whether the table has a row for each name. */
  let hasRows = false;
  /** When the last renewal that succeeded began, a time of `performance.now()`. */
  let renewedAt = Number.NEGATIVE_INFINITY;
  // The monotonic clock runs while the process is suspended.
  const isFresh = () => performance.now() - renewedAt < times.leaseMs;

  const renew = async () => {
    const begun = performance.now();
    const won = await db.writeFor("rows", async (tx) => {
      if (!hasRows) await createMissing(tx, names);
      const fences = await compete(tx, holder, names, times.leaseMs);
      await alongside?.(tx);
      return fences;
    });
    hasRows = true;
    held = won;
    renewedAt = begun;
  };
  const closing = new AbortController();
  let hasWarned = false;
  const renewAlways = async () => {
    while (!closing.signal.aborted) {
      const reason = await renew().then(() => undefined, messageOf);
      if (reason !== undefined && !hasWarned)
        log.warn("The leases cannot be renewed now; retrying", { reason });
      hasWarned = reason !== undefined;
      // `stop` aborts the sleep, which then rejects.
      await system.sleep(times.renewEveryMs, closing.signal).catch(() => undefined);
    }
  };
  let running: Promise<void> | undefined;
  return {
    of(name) {
      names.push(name);
      /** The fence of the turn that runs; undefined: this replica runs none. */
      let fence: number | undefined;
      return {
        take() {
          fence = isFresh() ? held.get(name) : undefined;
          return fence !== undefined;
        },
        db: fenced(db, async (tx) => {
          if (fence === undefined) throw new LeaseLost(name);
          await requireFence(tx, name, holder, fence);
        }),
      };
    },
    start() {
      running = renewAlways();
    },
    async stop() {
      closing.abort();
      await running;
      held = new Map();
      await db
        .writeFor("rows", (tx) => leases.update(tx, { holder }, { expiresAt: 0 }))
        .catch(() => undefined);
    },
  };
}

function fenced(db: Database, check: (tx: Transaction) => Promise<void>): Database {
  const checked =
    <T>(work: (tx: Transaction) => Promise<T>) =>
    async (tx: Transaction) => {
      await check(tx);
      return work(tx);
    };
  return {
    ...db,
    write: (work) => db.write(checked(work)),
    writeFor: (concern, work) => db.writeFor(concern, checked(work)),
  };
}

const fencePick = leases.pick("name", "fence");
const fenceColumn = computed({ fence: integer() });

// KEY SHARE: a takeover waits for this transaction, a renewal by this replica does not.
const checkSql = `SELECT fence FROM leases WHERE name = $1 AND holder = $2 AND fence = $3 FOR KEY SHARE`;

async function requireFence(tx: Transaction, name: string, holder: string, fence: number): Promise<void> {
  if ((await queryOne(tx, fenceColumn, checkSql, [name, holder, fence])) === undefined)
    throw new LeaseLost(name);
}

async function createMissing(tx: Transaction, names: readonly string[]): Promise<void> {
  for (const name of names) {
    await leases.upsert(tx, { name, holder: "", fence: 0, expiresAt: 0 }, "ON CONFLICT (name) DO NOTHING");
  }
}

const renewSql = `UPDATE leases SET expires_at = ${databaseClock} + $2 WHERE holder = $1
  RETURNING ${fencePick.select()}`;
// SKIP LOCKED: the former holder is writing. It loses the lease when that transaction has ended.
const takeSql = `UPDATE leases SET holder = $1, fence = leases.fence + 1, expires_at = ${databaseClock} + $2
  FROM (SELECT name FROM leases WHERE name = $3 AND holder <> $1 AND expires_at < ${databaseClock}
    FOR UPDATE SKIP LOCKED) due
  WHERE leases.name = due.name RETURNING ${fencePick.select("leases")}`;

/** Renews the leases of this replica and takes over those that have expired. Returns the fences of all it holds. */
async function compete(
  tx: Transaction,
  holder: string,
  names: readonly string[],
  leaseMs: number,
): Promise<Map<string, number>> {
  const held = new Map<string, number>();
  for (const { name, fence } of await queryAll(tx, fencePick, renewSql, [holder, leaseMs]))
    held.set(name, fence);
  for (const name of names) {
    if (held.has(name)) continue;
    for (const { fence } of await queryAll(tx, fencePick, takeSql, [holder, leaseMs, name]))
      held.set(name, fence);
  }
  return held;
}
