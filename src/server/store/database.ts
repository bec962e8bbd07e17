// The interface that SQLite and PostgreSQL both implement. Both run the same SQL: parameters $1 $2 …, snake_case
// columns, booleans as 0 and 1, times in milliseconds since 1970, JSON as text.

export type Value = string | number | Uint8Array | null;
export type Row = Record<string, Value>;
export type Params = readonly Value[];

export interface Reader {
  all(sql: string, params?: Params): Promise<Row[]>;
  get(sql: string, params?: Params): Promise<Row | undefined>;
}

export interface Transaction extends Reader {
  dialect: Database["dialect"];
  /** Returns the number of changed rows. */
  run(sql: string, params?: Params): Promise<number>;
  /** Calls the listeners of every process after the commit; none if the transaction fails. */
  notify(channel: Channel, payload: string): Promise<void>;
}

/**
 * `auth`: a user's or token's rights changed; the payload names it, for the log. `organization`: the payload is the id
 * of an organization whose nodes have news. `node`: `<organization id>/<node id>`, one node has news.
 */
export type Channel = "auth" | "organization" | "node";

export interface Database extends Reader {
  dialect: "sqlite" | "postgres";
  /**
   * Runs the work in a transaction and resolves when the commit is on disk. The work may await only its transaction,
   * and may be run again from its start. A work that fails is undone alone. Throws storage_unavailable if the database
   * cannot write now.
   */
  write<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** Returns a function that removes the listener. */
  listen(channel: Channel, listener: (payload: string) => void): () => void;
  close(): Promise<void>;
}

/** A unique index refused a row. `constraint` names the table and columns. */
export class NotUnique extends Error {
  readonly constraint: string;

  constructor(constraint: string, cause: unknown) {
    super(`Not unique: ${constraint}`, { cause });
    this.name = "NotUnique";
    this.constraint = constraint;
  }
}
