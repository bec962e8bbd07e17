// Queries on connections to PostgreSQL, and its values as the values of the store.

import type { SQL } from "bun";
import { AppError } from "../../../base/errors.ts";
import { requireStorable, type Params, type Reader, type Row, type Value } from "../database.ts";
import { attempt, retrying } from "./errors.ts";
import type { Pools } from "./pools.ts";

type Queries = Pick<SQL, "unsafe">;

/** A pooled connection may have ended while idle. Reading again is harmless. */
export function patientReader({ all, get }: Reader): Reader {
  return {
    all: (text, params) => retrying(() => all(text, params)),
    get: (text, params) => retrying(() => get(text, params)),
  };
}

/** For queries that must be fast: one that gets no answer shows that all connections are dead, and they are opened again (pools.ts). */
export function pulseReader(pools: Pools): Reader {
  return {
    all: (text, params) => pools.pulse((sql) => readerOf(sql).all(text, params)),
    get: (text, params) => pools.pulse((sql) => readerOf(sql).get(text, params)),
  };
}

export function readerOf(queries: Queries): Reader {
  return {
    all: async (text, params = []) => (await query(queries, text, params)).map(rowOf),
    get: async (text, params = []) => {
      const [row] = await query(queries, text, params);
      return row === undefined ? undefined : rowOf(row);
    },
  };
}

/** Throws bad_request for a text that no database stores, and translated errors. */
export function query(queries: Queries, text: string, params: Params): Promise<unknown[]> {
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
export function countOf(rows: unknown[]): number {
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
