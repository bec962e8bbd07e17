// The control plane's store on PostgreSQL, or what speaks its protocol: one serializable transaction for each write, run
// again where the database asks for it. No table is known here.

import { SQL } from "bun";
import { AppError, systemErrorCode } from "../../errors.ts";
import {
  NotUnique,
  type Channel,
  type Database,
  type Params,
  type Reader,
  type Row,
  type Transaction,
  type Value,
} from "./database.ts";
import { migrate } from "./migrations.ts";

type Queries = Pick<SQL, "unsafe">;

const maxTries = 30;
const connections = 10;

/** Connects and brings the tables up to date. The URL may hold a password: it is never in a message. */
export async function openPostgres(options: { url: string; now(): number }): Promise<Database> {
  const sql = new SQL(options.url, { max: connections, bigint: true, onclose: () => undefined });
  const database: Database = {
    ...readerOf(sql),
    dialect: "postgres",
    write: (work) => again(() => once(sql, work)),
    listen(channel, listener) {
      const subscribed = sql.listen(channelName(channel), (payload) => listener(payload));
      // Bun takes the subscription up again by itself; one that never stood is told by the writes that fail.
      subscribed.catch(() => undefined);
      return () => void subscribed.then((subscription) => subscription.unlisten()).catch(() => undefined);
    },
    close: () => sql.close({ timeout: 5 }),
  };
  await migrate(database, options.now());
  return database;
}

async function once<T>(sql: SQL, work: (tx: Transaction) => Promise<T>): Promise<T> {
  let failure: { error: unknown } | undefined;
  try {
    return await sql.begin("ISOLATION LEVEL SERIALIZABLE", async (inside) => {
      const tx: Transaction = {
        ...readerOf(inside),
        dialect: "postgres",
        run: async (text, params = []) => changed(await query(inside, text, params)),
        notify: async (channel, payload) => {
          await query(inside, "SELECT pg_notify($1, $2)", [channelName(channel), payload]);
        },
      };
      try {
        return await work(tx);
      } catch (error) {
        failure = { error };
        throw error;
      }
    });
  } catch (error) {
    throw translate(failure?.error ?? error);
  }
}

/** 40001 and 40P01 say: nothing happened, try again. */
async function again<T>(act: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof Retry)) throw error;
      if (tries === maxTries) throw unavailable(error.cause);
      await Bun.sleep(Math.random() * Math.min(100, 2 ** tries));
    }
  }
}

class Retry extends Error {}

function readerOf(queries: Queries): Reader {
  return {
    all: async (text, params = []) => (await query(queries, text, params)).map(rowOf),
    get: async (text, params = []) => {
      const [row] = await query(queries, text, params);
      return row === undefined ? undefined : rowOf(row);
    },
  };
}

async function query(queries: Queries, text: string, params: Params): Promise<unknown[]> {
  try {
    const rows: unknown = await queries.unsafe(text, [...params]);
    return Array.isArray(rows) ? rows : [];
  } catch (error) {
    throw translate(error);
  }
}

function changed(rows: unknown[]): number {
  return "count" in rows && typeof rows.count === "number" ? rows.count : rows.length;
}

/** int8 comes as bigint; ids and times are exact as numbers. */
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
  throw new AppError("internal", `The database's column ${column} holds a ${typeof value}`);
}

function channelName(channel: Channel): string {
  return `overlay_${channel}`;
}

function translate(error: unknown): unknown {
  if (error instanceof AppError || error instanceof NotUnique || error instanceof Retry) return error;
  if (!(error instanceof Error)) return error;
  const state = "errno" in error ? String(error.errno) : "";
  if (state === "40001" || state === "40P01") return new Retry("try again", { cause: error });
  if (state === "23505") {
    return new NotUnique("constraint" in error ? String(error.constraint) : "", error);
  }
  // 53: insufficient resources (disk full), 57: the operator stops it, 58: I/O error, 08: connection, 25006: read only.
  if (/^(08|53|57|58|25006)/.test(state) || (systemErrorCode(error) ?? "").includes("CONNECTION")) {
    return unavailable(error);
  }
  return error;
}

function unavailable(cause: unknown): AppError {
  return new AppError("storage_unavailable", "The database cannot be used now", { cause, retryAfter: 5 });
}
