// The interface that SQLite and PostgreSQL both implement. Both run the same SQL: parameters $1 $2 …, snake_case
// columns, booleans as 0 and 1, times in milliseconds since 1970, JSON as text.

import { AppError } from "../../base/errors.ts";
import { isStorable, notStorable } from "../../base/text.ts";
import type { System } from "../../base/system.ts";

export type Value = string | number | Uint8Array | null;
export type Row = Record<string, Value>;
export type Params = readonly Value[];

export interface Reader {
  all(sql: string, params?: Params): Promise<Row[]>;
  get(sql: string, params?: Params): Promise<Row | undefined>;
}

/**
 * The scope of a write. Writes that concern the same organization or user run one after another, on all replicas.
 * `rows`: each statement of the write is correct by itself, whatever runs beside it, as `UPDATE … WHERE used_at IS
 * NULL`.
 */
export type Concern = { org: number } | { user: number } | "rows";

export interface Transaction extends Reader {
  dialect: Database["dialect"];
  /** The locks of this transaction. */
  concerns: Concern | "everything";
  /** Returns the number of changed rows. */
  run(sql: string, params?: Params): Promise<number>;
  /** Calls the listeners of every process after the commit; none if the transaction fails. */
  notify(channel: Channel, payload: string): Promise<void>;
  /** Lets other requests have their chance, in a transaction of many statements. Other writes wait all the same. */
  pause(): Promise<void>;
}

/**
 * `auth`: a user's or token's rights changed; the payload names it, for the log. `organization`: the payload is the id of an
 * organization whose nodes have news. `node`: `<organization id>/<node id>`, one node has news; with `/<replica>`, it confirmed
 * a version there. `throttle`: what a replica counted (shared-throttle.ts). `names`: the payload is the id of an organization
 * whose names changed. `drill`: the payload is the id of an organization whose drills changed.
 */
export type Channel = "auth" | "organization" | "node" | "throttle" | "names" | "drill";

export interface Database extends Reader {
  dialect: "sqlite" | "postgres";
  /**
   * Runs the work in a transaction and resolves when the commit is on disk. The work may await only its transaction,
   * and may be run again from its start. A work that fails is undone alone. Throws storage_unavailable if the database
   * cannot write now. No other write of any replica runs meanwhile.
   */
  write<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /**
   * Like `write`, but runs beside writes that concern something else. The work must decide only from what it names:
   * the rows of the organization or user, and what only `write` changes. A unique index protects what must be unique
   * beyond that.
   */
  writeFor<T>(concern: Concern, work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** How long ago the last complete look for other processes' notices began, ms. */
  noticesBehindMs(): number;
  /**
   * Whether the listeners have received the notice of every committed write: then their memory is as current as the
   * rows. SQLite checks, at the cost of a pragma; PostgreSQL cannot know, and neither can a visitor (the admin
   * commands), who hears no notices.
   */
  hasHeardAll(): boolean;
  /**
   * Resolves when what this process remembers may be wrong, because the database went back to an earlier state or its
   * notices were missed for a day. PostgreSQL only.
   */
  rewound?: Promise<void>;
  /** The damage that a statement met or an examination found, as far as it is there still. */
  damage(): string | undefined;
  /**
   * Looks for damage that no statement of this process meets. SQLite: reads all pages, in a process of its own.
   * PostgreSQL: reads which checksums failed.
   */
  examine(system: Pick<System, "run" | "executable">): Promise<void>;
  /** Returns a function that removes the listener. */
  listen(channel: Channel, listener: (payload: string) => void): () => void;
  close(): Promise<void>;
}

/**
 * The gate of both databases. PostgreSQL refuses a null character; SQLite stores it, and stores U+FFFD for a lone surrogate,
 * so that two texts become one. Schemas refuse such texts first, with the name of the field. Throws bad_request.
 */
export function requireStorable(params: Params): Params {
  for (const each of params)
    if (typeof each === "string" && !isStorable(each)) throw new AppError("bad_request", notStorable);
  return params;
}

/** PostgreSQL: the database's own time, ms. Replicas compare times by it, whatever their own clocks show. */
export const databaseClock = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";

/** Throws internal unless the transaction excludes other writes of the organization; null: those of no organization. */
export function requireLockOf({ concerns }: Pick<Transaction, "concerns">, orgId: number | null): void {
  if (concerns === "everything") return;
  if (orgId !== null && concerns !== "rows" && "org" in concerns && concerns.org === orgId) return;
  const asked = orgId === null ? "no organization" : `organization ${orgId}`;
  throw new AppError("internal", `A write of ${asked} runs under the lock of ${JSON.stringify(concerns)}`);
}

/** Whether the database could not be used just then: it is away, full, damaged, read-only or locked for too long. */
export const isStorageUnavailable = (error: unknown): error is AppError =>
  error instanceof AppError && error.code === "storage_unavailable";

/** For `catch`: throws what `make` returns if a unique index refused a row, and other errors as they are. */
export const ifNotUnique =
  (make: (cause: NotUnique) => Error) =>
  (error: unknown): never => {
    throw error instanceof NotUnique ? make(error) : error;
  };

/** A unique index refused a row. `constraint` names the table and columns. */
export class NotUnique extends Error {
  readonly constraint: string;

  constructor(constraint: string, cause: unknown) {
    super(`Not unique: ${constraint}`, { cause });
    this.name = "NotUnique";
    this.constraint = constraint;
  }
}
