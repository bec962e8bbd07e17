// The control plane's store on PostgreSQL or a database that speaks its protocol. Writes of one process that concern the
// same share a transaction, each in its own savepoint. Locks serialize the writes of all processes that concern the same
// (lockOf), so such writes never conflict. Knows no table but `notices`.

import { SQL } from "bun";
import { AppError, messageOf } from "../../../base/errors.ts";
import type { Database, Reader, Transaction } from "../database.ts";
import { migrate } from "../migrations.ts";
import { makeListeners, type Notice } from "../notices.ts";
import { makeWriteQueue, type Committed, type Work } from "../write-queue.ts";
import { sessionName, watchFormer } from "./connected-servers.ts";
import { watchPages } from "./damage.ts";
import { attempt, failsAll, Lost, retrying, unavailable } from "./errors.ts";
import { makeBell, watchNotices } from "./notices.ts";
import { openPools, writeConnections } from "./pools.ts";
import { countOf, patientReader, pulseReader, query, readerOf } from "./queries.ts";
import { fitnessSql, refusalOf, requireFit } from "./refusals.ts";

export type PostgresOptions = {
  /** May hold a password: never put it into a message. */
  url: string;
  now(): number;
  /** `server` listens for the commits of other processes; `visitor` (the admin commands) does not listen. */
  role?: "server" | "visitor";
};

/** Takes the id of a notice of this process, so that it is not passed on again as that of another one. */
type KeepOwn = (id: number) => void;

/** Maximum writes in one transaction. If the transaction fails, all of them fail. */
const maxBatch = 100;
/** The channel of the bell, a NOTIFY that makes other processes look for notices (notices.ts). */
const bellName = "overlay_agent";
/** Notices are kept for this time. A replica that was disconnected for longer must be restarted. */
const keptMs = 86_400_000;
/** Old notices are deleted after each notice whose id this number divides. */
const tidyEvery = 1000;
/** $1: ms. The newest $2 stay: each replica looks for the last one that it has read (notices.ts). */
const tidySql = "DELETE FROM notices WHERE created_at < $1 AND id < (SELECT max(id) FROM notices) - $2";

/**
 * The locks of a transaction, in SQL. The numbers are arbitrary, but the same for all replicas. A write of everything takes
 * lock 8420 alone, every other write shares it. Release 0.1.0 takes it alone for each write, so a replica of that release
 * and newer ones exclude each other. The transaction gets its number here, before the numbers of its notices: a reader
 * depends on that order (notices.ts).
 */
function lockOf(concerns: Transaction["concerns"]): string {
  const locks =
    concerns === "everything" ? ["pg_advisory_xact_lock(8420)"] : ["pg_advisory_xact_lock_shared(8420)"];
  if (typeof concerns === "object")
    locks.push("org" in concerns ? lockOfRow(8421, concerns.org) : lockOfRow(8422, concerns.user));
  return `SELECT ${locks.join(", ")}, pg_current_xact_id();`;
}

/** Locks have 32 bits: rows whose ids are equal in these bits merely wait for each other. */
function lockOfRow(kind: number, id: number): string {
  return `pg_advisory_xact_lock(${kind}, ${id | 0})`;
}

/** Connects and brings the tables up to date. */
export async function openPostgres(options: PostgresOptions): Promise<Database> {
  const pools = openPools(options.url, sessionName(options.role ?? "server"));
  // `noting` notes errors that show damage.
  const { noting, examine, damage } = watchPages();
  const queries = readerOf({ unsafe: (text, params) => pools.reads().unsafe(text, params) });
  const reader = patientReader({
    all: (text, params) => noting(queries.all(text, params)),
    get: (text, params) => noting(queries.get(text, params)),
  });
  // Queries on a connection of its own, whose silence shows that all connections are dead (pools.ts).
  const pulse = patientReader(pulseReader(pools));
  const { listen, tell } = makeListeners();
  const bell = makeBell(
    async () => void (await pools.reads().unsafe("SELECT pg_notify($1, '')", [bellName])),
  );
  const formerServers = watchFormer(pulse);
  /** Undefined for a visitor, and until the tables are up to date. */
  let watch: Awaited<ReturnType<typeof watchNotices>> | undefined;
  const commit = async (batch: readonly Work[]) => {
    // All works of a batch concern the same (write-queue.ts). A server of 0.1.0 reads notices in the order of their ids, so writes
    // commit one at a time while one is connected.
    const concerns = formerServers.isConnected() ? "everything" : (batch[0]?.concerns ?? "rows");
    const committed = await retrying(() =>
      noting(
        pools.writing((sql) =>
          commitTogether(sql, batch, { lock: lockOf(concerns), now: options.now, keepOwn: watch?.keepOwn }),
        ),
      ),
    );
    if (committed.notices.length > 0) bell.ring();
    return committed;
  };
  const queue = makeWriteQueue(commit, tell, { maxBatch, width: writeConnections, gatherMs: 0 });
  const rewound = Promise.withResolvers<void>();
  const database: Database = {
    ...reader,
    dialect: "postgres",
    damage,
    examine: () => examine(reader),
    write: queue.write,
    writeFor: queue.writeFor,
    // Cannot be known here: another process may have committed a moment ago.
    hasHeardAll: () => false,
    noticesBehindMs: () => (watch === undefined ? 0 : Math.round(performance.now() - watch.lookedAt())),
    listen,
    rewound: rewound.promise,
    async close() {
      await queue.close();
      formerServers.stop();
      await bell.stop();
      await watch?.stop();
      await pools.close();
    },
  };
  try {
    requireFit((await reader.get(fitnessSql)) ?? {});
    await migrate(database, options.now());
    await formerServers.look();
    if (options.role !== "visitor") {
      formerServers.start();
      watch = await watchNotices(pulse, { tell, rewound: rewound.resolve }, (ring) =>
        attempt(() => pools.listen(bellName, ring)),
      );
    }
    return database;
  } catch (error) {
    formerServers.stop();
    await pools.close();
    throw refusalOf(error) ?? withReason(error);
  }
}

/**
 * Only for the operator, who starts a server or a command: answers of the API do not contain names of roles and
 * hosts.
 */
function withReason(error: unknown): unknown {
  if (!(error instanceof AppError) || error.details.cause === undefined) return error;
  const { hint = "", cause } = error.details;
  return new AppError(error.code, error.message, { ...error.details, hint: `${hint} ${messageOf(cause)}` });
}

/** Runs the work on a snapshot of all rows. Writes do not wait for it. */
export async function onSnapshot<T>(url: string, work: (reader: Reader) => Promise<T>): Promise<T> {
  const sql = new SQL(url, { max: 1, bigint: true, onclose: () => undefined });
  let result: { value: T } | undefined;
  try {
    await attempt(() =>
      sql.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY", async (inside) => {
        result = { value: await work(readerOf(inside)) };
      }),
    );
  } finally {
    await sql.close();
  }
  if (result === undefined) throw new AppError("internal", "A transaction ended without its result");
  return result.value;
}

/** Runs the works in one transaction, one after another, each in a savepoint. */
async function commitTogether(
  sql: SQL,
  batch: readonly Work[],
  { lock, now, keepOwn }: { lock: string; now: () => number; keepOwn: KeepOwn | undefined },
): Promise<Committed> {
  /** All works are done, and COMMIT is sent or about to be. */
  let isCommitting = false;
  return attempt(async () => {
    const { settlers, notices, noticeIds } = await sql.begin(async (inside) => {
      const settlers: (() => void)[] = [];
      /** The notices of all works, each once, by channel and payload. */
      const notices = new Map<string, Notice>();
      /** The notices of the work that runs: they count only if it succeeds. */
      let ownNotices: Notice[] = [];
      const tx: Transaction = {
        ...readerOf(inside),
        dialect: "postgres",
        concerns: batch[0]?.concerns ?? "rows",
        run: async (text, params = []) => countOf(await query(inside, text, params)),
        notify: async (channel, payload) => void ownNotices.push({ channel, payload }),
        // PostgreSQL needs none: each statement already lets other requests run.
        pause: () => Promise.resolve(),
      };
      for (const [at, work] of batch.entries()) {
        ownNotices = [];
        await inside.unsafe(`${at === 0 ? lock : "RELEASE work;"} SAVEPOINT work`).simple();
        try {
          await work.run(tx);
          settlers.push(work.done);
          for (const each of ownNotices) notices.set(`${each.channel} ${each.payload}`, each);
        } catch (error) {
          if (failsAll(error)) throw error;
          await inside.unsafe("ROLLBACK TO work").simple();
          settlers.push(() => work.failed(error));
        }
      }
      isCommitting = true;
      // COMMIT follows without waiting for the answer, and stores nothing if this insertion fails.
      const ids = leaveNotices(tx, [...notices.values()], now(), keepOwn);
      ids.catch(() => undefined);
      // A function, because a promise that is returned would be awaited before COMMIT.
      return { settlers, notices: [...notices.values()], noticeIds: () => ids };
    });
    if ((await noticeIds()).some((id) => id % tidyEvery === 0))
      await sql.unsafe(tidySql, [BigInt(now() - keptMs), BigInt(tidyEvery)]).catch(() => undefined);
    return { settlers, notices };
  }).catch((error: unknown) => {
    // If the connection ended during COMMIT, the outcome is unknown: do not retry. Before COMMIT, nothing was stored.
    throw error instanceof Lost && isCommitting ? unavailable(error.cause) : error;
  });
}

/**
 * Stores the notices, and returns their ids. The bell is rung after the commit: PostgreSQL commits only one transaction at a time
 * that contains a NOTIFY.
 */
async function leaveNotices(
  tx: Transaction,
  notices: readonly Notice[],
  now: number,
  keepOwn: KeepOwn | undefined,
): Promise<readonly number[]> {
  if (notices.length === 0) return [];
  const rows = notices.map((_, at) => `($${2 * at + 2}, $${2 * at + 3}, $1)`).join(", ");
  const inserted = await tx.all(
    `INSERT INTO notices (channel, payload, created_at) VALUES ${rows} RETURNING id`,
    [now, ...notices.flatMap(({ channel, payload }) => [channel, payload])],
  );
  const ids = inserted.map((row) => Number(row["id"]));
  for (const id of ids) keepOwn?.(id);
  return ids;
}
