// What the control plane needs of a database; SQLite and PostgreSQL both give it. One SQL text serves both:
// $1 $2 … parameters, snake_case columns, truth values as 0 and 1, times in milliseconds since 1970, JSON as text.

import { AppError } from "../../errors.ts";

export type Value = string | number | Uint8Array | null;
export type Row = Record<string, Value>;
export type Params = readonly Value[];

export interface Reader {
  all(sql: string, params?: Params): Promise<Row[]>;
  get(sql: string, params?: Params): Promise<Row | undefined>;
}

export interface Transaction extends Reader {
  dialect: Database["dialect"];
  /** The number of rows that were changed. */
  run(sql: string, params?: Params): Promise<number>;
  /** Told to every listener of every process after the commit, and never if there is none. */
  notify(channel: Channel, payload: string): Promise<void>;
}

/**
 * `auth`: somebody's rights changed (payload: who, for the log). `organization`: its id, news for its nodes.
 * `node`: `<organization id>/<node id>`, news for one node alone.
 */
export type Channel = "auth" | "organization" | "node";

export interface Database extends Reader {
  dialect: "sqlite" | "postgres";
  /**
   * Runs the work in a transaction and resolves once its commit is on disk. The work awaits nothing but its
   * transaction, and may be run again from the start. A failing work undoes itself alone.
   * Throws storage_unavailable where the database cannot write now.
   */
  write<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** Returns what ends the listening. */
  listen(channel: Channel, listener: (payload: string) => void): () => void;
  close(): Promise<void>;
}

/** Thrown by both databases where a unique index refuses a row; `constraint` names table and columns. */
export class NotUnique extends Error {
  readonly constraint: string;

  constructor(constraint: string, cause: unknown) {
    super(`Not unique: ${constraint}`, { cause });
    this.name = "NotUnique";
    this.constraint = constraint;
  }
}

export function textOf(row: Row, column: string): string {
  const value = row[column];
  return typeof value === "string" ? value : wrong(column, "text", value);
}

export function textOrNull(row: Row, column: string): string | null {
  return row[column] === null ? null : textOf(row, column);
}

export function numberOf(row: Row, column: string): number {
  const value = row[column];
  return typeof value === "number" ? value : wrong(column, "a number", value);
}

export function numberOrNull(row: Row, column: string): number | null {
  return row[column] === null ? null : numberOf(row, column);
}

function wrong(column: string, wanted: string, met: Value | undefined): never {
  throw new AppError("internal", `The database's column ${column} should hold ${wanted}, not ${typeof met}`);
}
