// The control plane's store on PostgreSQL or a database that speaks its protocol. Writes of one process that concern the
// same share a transaction, each in its own savepoint. Locks serialize the writes of all processes that concern the same
// (lockOf), so such writes never conflict. Knows no table but `notices`.

import { SQL } from "bun";
import { brand } from "../../../brand.ts";
import { AppError, messageOf } from "../../../base/errors.ts";
import { systemErrorCode } from "../../../base/system-errors.ts";
import {
  isStorageUnavailable,
  NotUnique,
  requireStorable,
  type Database,
  type Params,
  type Reader,
  type Row,
  type Transaction,
  type Value,
} from "../database.ts";
import { migrate } from "../migrations.ts";
import { makeBell, makeListeners, watchNotices, type Notice } from "../notices.ts";
import { isDamage, watchPages } from "./damage.ts";
import { openPools, writeConnections, type Pools } from "./pools.ts";
import { fitnessSql, refusalOf, requireFit, sqlStateOf } from "./refusals.ts";
import { queryNumber } from "../table.ts";
import { makeWriteQueue, type Committed, type Work } from "../write-queue.ts";

export type PostgresOptions = {
  /** May hold a password: never put it into a message. */
  url: string;
  now(): number;
  /** `server` listens for the commits of other processes; `visitor` (the admin commands) does not listen. */
  role?: "server" | "visitor";
};

type Queries = Pick<SQL, "unsafe">;
type KeepOwn = (id: number) => void;

const maxTries = 10;
/** A new connection to a host that does not answer takes 5 s to fail. */
const retryForMs = 5000;
/** Maximum writes in one transaction. If the transaction fails, all of them fail. */
const maxBatch = 100;
const bellName = "overlay_agent";
/** Notices are kept for this time. A replica that was disconnected for longer must be restarted. */
const keptMs = 86_400_000;
/** Old notices are deleted after each notice whose id this number divides. */
const tidyEvery = 1000;
/** $1: ms. The newest $2 stay: each replica looks for the last one that it has read (notices.ts). */
const tidySql = "DELETE FROM notices WHERE created_at < $1 AND id < (SELECT max(id) FROM notices) - $2";
/** How often a server looks for servers of release 0.1.0. */
const lookForFormerMs = 2000;

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
  const { noting, examine, damage } = watchPages();
  const queries = readerOf({ unsafe: (text, params) => pools.reads().unsafe(text, params) });
  const reader = patientReader({
    all: (text, params) => noting(queries.all(text, params)),
    get: (text, params) => noting(queries.get(text, params)),
  });
  const pulse = patientReader(pulseReader(pools));
  const { listen, tell } = makeListeners();
  const bell = makeBell(
    async () => void (await pools.reads().unsafe("SELECT pg_notify($1, '')", [bellName])),
  );
  const formerServers = watchFormer(pulse);
  const commit = async (batch: readonly Work[]) => {
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
  let watch: Awaited<ReturnType<typeof watchNotices>> | undefined;
  const rewound = Promise.withResolvers<void>();
  const database: Database = {
    ...reader,
    dialect: "postgres",
    damage,
    examine: () => examine(reader),
    write: queue.write,
    writeFor: queue.writeFor,
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

function sessionName(role: "server" | "visitor"): string {
  return role === "server" ? `${brand.id} replica` : `${brand.id} ${role}`;
}

/** The name that servers of release 0.1.0 have. */
const formerName = `${brand.id} server`;

const sessionsNamed = `SELECT count(*) AS n FROM pg_stat_activity
  WHERE datname = current_database() AND application_name IN ($1, $2)`;

/** How many servers are connected now. */
export function connectedServers(reader: Pick<Reader, "get">): Promise<number> {
  return queryNumber(reader, sessionsNamed, [sessionName("server"), formerName]);
}

/**
 * Whether a server of release 0.1.0 is connected: it reads notices in the order of their ids, so all writes must commit
 * in this order, one at a time. True until the first look.
 */
function watchFormer(reader: Pick<Reader, "get">) {
  let isConnected = true;
  let timer: ReturnType<typeof setInterval> | undefined;
  const look = async () => {
    isConnected = (await queryNumber(reader, sessionsNamed, [formerName, formerName])) > 0;
  };
  return {
    look,
    isConnected: () => isConnected,
    start() {
      // A failed look changes nothing.
      timer = setInterval(() => void look().catch(() => undefined), lookForFormerMs);
      timer.unref();
    },
    stop: () => clearInterval(timer),
  };
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
  let isCommitting = false;
  return attempt(async () => {
    const { settlers, notices, noticeIds } = await sql.begin(async (inside) => {
      const settlers: (() => void)[] = [];
      /** Those of all works, each once. */
      const notices = new Map<string, Notice>();
      /** Those of the work that runs: they count only if it succeeds. */
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
      // COMMIT follows without waiting for the answer, and stores nothing if this fails.
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

/** Retries when the database is known to have stored nothing. */
async function retrying<T>(act: () => Promise<T>): Promise<T> {
  const end = performance.now() + retryForMs;
  for (let tries = 1; ; tries++) {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof Retry || error instanceof Lost)) throw error;
      if (tries >= maxTries || performance.now() > end) throw unavailable(error.cause);
      await Bun.sleep(Math.random() * Math.min(100, 2 ** tries));
    }
  }
}

/** 40001 and 40P01: the transaction must be run again. */
class Retry extends Error {}
/** The connection ended. A new one may work. */
class Lost extends Error {}

/** A pooled connection may have ended while idle. Reading again is harmless. */
function patientReader({ all, get }: Reader): Reader {
  return {
    all: (text, params) => retrying(() => all(text, params)),
    get: (text, params) => retrying(() => get(text, params)),
  };
}

function pulseReader(pools: Pools): Reader {
  return {
    all: (text, params) => pools.pulse((sql) => readerOf(sql).all(text, params)),
    get: (text, params) => pools.pulse((sql) => readerOf(sql).get(text, params)),
  };
}

function readerOf(queries: Queries): Reader {
  return {
    all: async (text, params = []) => (await query(queries, text, params)).map(rowOf),
    get: async (text, params = []) => {
      const [row] = await query(queries, text, params);
      return row === undefined ? undefined : rowOf(row);
    },
  };
}

function query(queries: Queries, text: string, params: Params): Promise<unknown[]> {
  return attempt(async () => {
    const rows: unknown = await queries.unsafe(text, requireStorable(params).map(parameterOf));
    return Array.isArray(rows) ? rows : [];
  });
}

/** Sends whole numbers as int8: compared with a float, the index would not be used. */
function parameterOf(value: Value): Value | bigint {
  return typeof value === "number" && Number.isInteger(value) ? BigInt(value) : value;
}

/** How many rows the statement changed, or returned. */
function countOf(rows: unknown[]): number {
  return "count" in rows && typeof rows.count === "number" ? rows.count : rows.length;
}

/** int8 arrives as bigint. Ids and times are exact as numbers. */
function rowOf(row: unknown): Row {
  const values: Row = {};
  if (typeof row !== "object" || row === null) return values;
  for (const [column, value] of Object.entries(row)) values[column] = valueOf(column, value);
  return values;
}

function valueOf(column: string, value: unknown): Value {
  if (typeof value === "bigint") return Number(value);
  if (value === null || typeof value === "string" || typeof value === "number") return value;
  if (value instanceof Uint8Array) return value;
  // pg_notify returns void.
  if (value === undefined) return null;
  throw new AppError("internal", `The database's column ${column} holds a ${typeof value}`);
}

async function attempt<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw translate(error);
  }
}

/** Whether the whole transaction has failed, not one work of it alone. */
function failsAll(error: unknown): boolean {
  return error instanceof Retry || error instanceof Lost || isStorageUnavailable(error);
}

function translate(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof AppError) return error;
  const state = sqlStateOf(error);
  if (state === "40001" || state === "40P01") return new Retry("try again", { cause: error });
  if (state === "23505") {
    return new NotUnique("constraint" in error ? String(error.constraint) : "", error);
  }
  if (isDamage(state)) {
    return new AppError("storage_unavailable", "The database is damaged", {
      cause: error,
      retryAfter: 60,
      hint: `Examine the disk of PostgreSQL; its log says what is damaged. If it stays, restore the last backup: \`${brand.executable} admin restore FILE --replace\`.`,
    });
  }
  // 08: connection. 57P: ended by the operator. 25P03: our own time-out.
  const code = systemErrorCode(error) ?? "";
  if (/^(08|57P|25P03)/.test(state) || code.includes("CONNECTION"))
    return new Lost("the connection ended", { cause: error });
  // 28: the role may not connect. 3D: no such database. 53: insufficient resources (disk full). 57: cancelled. 58: I/O error.
  // 25006: read only. 55P03: lock time-out.
  const isRefused = /^(28|3D|53|57|58|25006|55P03)/.test(state);
  // A certificate ends, or is replaced, while the server runs.
  return isRefused || /TLS|CERT|ISSUER|LEAF/.test(code) ? unavailable(error) : error;
}

function unavailable(cause: unknown): AppError {
  return new AppError("storage_unavailable", "The database cannot be used now", {
    cause,
    retryAfter: 5,
    hint: "Check that PostgreSQL runs, that its disk works and has space, and that --database-url is right.",
  });
}
