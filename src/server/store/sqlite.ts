// The control plane's default store: one SQLite file. Writes of one turn of the event loop share one commit
// (synchronous=FULL, so durable and fast at once); who fails undoes itself alone. No table but `notices` is known here.

import { Database as Sqlite, SQLiteError, type Statement } from "bun:sqlite";
import { formatTime } from "../../duration.ts";
import { AppError } from "../../errors.ts";
import {
  NotUnique,
  numberOf,
  type Channel,
  type Database,
  type Reader,
  type Row,
  type Transaction,
  type Value,
} from "./database.ts";
import { migrate, newestVersion } from "./migrations.ts";

export type SqliteOptions = {
  path: string;
  now(): number;
  /**
   * `server` listens: what other processes commit is noticed within `pollMs`. `visitor` (the admin commands)
   * leaves notices in the file for it.
   */
  role: "server" | "visitor";
  pollMs?: number;
  /** A copy already: none is made of it before its tables are changed. */
  isCopy?: boolean;
};

type Work = { run(tx: Transaction): Promise<unknown>; done(): void; failed(error: unknown): void };
type Notice = { channel: Channel; payload: string };
type Connection = { sqlite: Sqlite; prepare(sql: string): Statement; close(): void };

/** Opens or creates the file and brings its tables up to date. */
export async function openSqlite(options: SqliteOptions): Promise<Database> {
  let writer = attempt(() => connect(options.path));
  let reads = attempt(() => connect(options.path));
  const listeners = new Map<Channel, Set<(payload: string) => void>>();
  let queue: Work[] = [];
  let scheduled = false;
  let closed = false;

  const tell = (notices: readonly Notice[]) => {
    for (const { channel, payload } of notices) {
      for (const listener of listeners.get(channel) ?? []) listener(payload);
    }
  };

  const flush = async () => {
    const batch = queue;
    queue = [];
    try {
      const { settle, notices } = await commitTogether(writer, batch, options);
      for (const each of settle) each();
      tell(notices);
    } catch (error) {
      const refused = translate(error);
      for (const work of batch) work.failed(refused);
      if (metInputOutputError(refused)) reconnect();
    }
    if (queue.length > 0) setImmediate(() => void flush());
    else scheduled = false;
  };

  // A connection that met an I/O error is not trusted again. While the disk still refuses, the old ones stay.
  const reconnect = () => {
    try {
      const fresh = [connect(options.path), connect(options.path)] as const;
      writer.close();
      reads.close();
      [writer, reads] = fresh;
    } catch (error) {
      if (!(error instanceof SQLiteError)) throw error;
    }
  };

  const write = <T>(run: (tx: Transaction) => Promise<T>): Promise<T> =>
    new Promise<T>((resolve, reject) => {
      if (closed) return reject(new AppError("storage_unavailable", "The database is closed"));
      let result: Promise<T>;
      queue.push({
        run: (tx) => (result = run(tx)),
        done: () => resolve(result),
        failed: reject,
      });
      if (scheduled) return;
      scheduled = true;
      setImmediate(() => void flush());
    });

  const database: Database = {
    ...readerOf(() => reads),
    dialect: "sqlite",
    write,
    listen(channel, listener) {
      const set = listeners.get(channel) ?? new Set();
      listeners.set(channel, set.add(listener));
      return () => void set.delete(listener);
    },
    async close() {
      if (closed) return;
      if (scheduled) await write(async () => undefined);
      closed = true;
      stopWatching?.();
      reads.close();
      writer.close();
    },
  };
  if (options.isCopy !== true) await copyBeforeMigration(database, options);
  await migrate(database, options.now());
  const stopWatching =
    options.role === "server" ? watchOthers(() => writer, options.pollMs ?? 250, tell) : undefined;
  return database;
}

/** Before the tables are changed, what was there is kept beside: `control.db.v1-2026-11-21T14-00-00Z`. */
async function copyBeforeMigration(database: Reader, { path, now }: SqliteOptions): Promise<void> {
  const known = await database.get("SELECT name FROM sqlite_master WHERE name = 'migrations'");
  if (known === undefined) return;
  const row = await database.get("SELECT coalesce(max(version), 0) AS version FROM migrations");
  const version = numberOf(row ?? {}, "version");
  if (version === 0 || version >= newestVersion) return;
  const { copyDatabase } = await import("./sqlite-files.ts");
  copyDatabase(path, `${path}.v${version}-${formatTime(now()).replaceAll(":", "-")}`);
}

function connect(path: string): Connection {
  const sqlite = new Sqlite(path, { create: true, readwrite: true, strict: true });
  // First of all: without it two processes that open the file at once fail instead of waiting.
  sqlite.run("PRAGMA busy_timeout = 5000");
  sqlite.run("PRAGMA journal_mode = WAL");
  sqlite.run("PRAGMA synchronous = FULL");
  sqlite.run("PRAGMA foreign_keys = ON");
  const statements = new Map<string, Statement>();
  return {
    sqlite,
    // Database.query() keeps 20 statements only. `$1` is a name here, numbered by its first appearance; `?1` is what
    // PostgreSQL means by it.
    prepare(sql) {
      let statement = statements.get(sql);
      if (statement === undefined) {
        statements.set(sql, (statement = sqlite.prepare(sql.replace(/\$(?=\d)/g, "?"))));
      }
      return statement;
    },
    close() {
      // A statement that is left over keeps the file open, and the write-ahead log beside it.
      for (const statement of statements.values()) statement.finalize();
      sqlite.close();
    },
  };
}

type Committed = { settle: (() => void)[]; notices: Notice[] };

/**
 * Runs the works one after the other in one transaction; the answers to give once it is committed. Nearly always all of
 * them succeed and none needs a savepoint, which costs as much as a statement; where one fails, all are run again.
 */
async function commitTogether(
  connection: Connection,
  batch: readonly Work[],
  options: Pick<SqliteOptions, "role" | "now">,
): Promise<Committed> {
  const { sqlite, prepare } = connection;
  const inTransaction = async (run: typeof runAll) => {
    prepare("BEGIN IMMEDIATE").run();
    try {
      const committed = await run(connection, batch);
      if (options.role === "visitor") leaveNotices(connection, committed.notices, options.now());
      prepare("COMMIT").run();
      return committed;
    } catch (error) {
      if (sqlite.inTransaction) prepare("ROLLBACK").run();
      throw error;
    }
  };
  try {
    return await inTransaction(runAll);
  } catch (error) {
    if (isUnavailable(translate(error))) throw error;
    return inTransaction(runApart);
  }
}

/** As long as none fails. */
async function runAll(connection: Connection, batch: readonly Work[]): Promise<Committed> {
  const notices: Notice[] = [];
  const tx = transactionOn(connection, notices);
  for (const work of batch) await work.run(tx);
  return { settle: batch.map(({ done }) => done), notices };
}

/** Each in a savepoint: who fails undoes itself alone. */
async function runApart(connection: Connection, batch: readonly Work[]): Promise<Committed> {
  const { sqlite, prepare } = connection;
  const settle: (() => void)[] = [];
  const notices: Notice[] = [];
  for (const work of batch) {
    const told: Notice[] = [];
    prepare("SAVEPOINT work").run();
    try {
      await work.run(transactionOn(connection, told));
      prepare("RELEASE work").run();
      settle.push(work.done);
      notices.push(...told);
    } catch (error) {
      // An error of the disk may have rolled back everything: then nothing of the batch stands.
      if (isUnavailable(error) || !sqlite.inTransaction) throw error;
      prepare("ROLLBACK TO work").run();
      prepare("RELEASE work").run();
      settle.push(() => work.failed(error));
    }
  }
  return { settle, notices };
}

function transactionOn(connection: Connection, told: Notice[]): Transaction {
  return {
    ...readerOf(() => connection),
    dialect: "sqlite",
    run: async (sql, params = []) => attempt(() => connection.prepare(sql).run(...params).changes),
    notify: async (channel, payload) => void told.push({ channel, payload }),
  };
}

function leaveNotices({ prepare }: Connection, notices: readonly Notice[], now: number): void {
  if (notices.length === 0) return;
  for (const { channel, payload } of notices) {
    prepare("INSERT INTO notices (channel, payload, created_at) VALUES ($1, $2, $3)").run(
      channel,
      payload,
      now,
    );
  }
  prepare("DELETE FROM notices WHERE created_at < $1").run(now - 3_600_000);
}

/** Tells of what other processes have left in `notices`; one cheap pragma a turn while nothing happens. */
function watchOthers(
  connection: () => Connection,
  everyMs: number,
  tell: (notices: readonly Notice[]) => void,
): () => void {
  const one = (sql: string) => Object.values(rowOf(connection().prepare(sql).get()) ?? {})[0] ?? null;
  let version: Value = null;
  let last: Value = one("SELECT coalesce(max(id), 0) FROM notices");
  const look = () => {
    try {
      const now = one("PRAGMA data_version");
      if (now === version) return;
      const rows = connection()
        .prepare("SELECT id, channel, payload FROM notices WHERE id > $1 ORDER BY id")
        .all(last)
        .filter(isRow);
      version = now;
      last = rows.at(-1)?.["id"] ?? last;
      tell(rows.filter(isNotice));
    } catch (error) {
      // Busy, or the disk refuses: the next turn looks again, because `version` is still the old one.
      if (!(error instanceof SQLiteError)) throw error;
    }
  };
  const timer = setInterval(look, everyMs);
  timer.unref();
  return () => clearInterval(timer);
}

function isNotice(row: Row): row is Row & Notice {
  const { channel, payload } = row;
  return (
    typeof payload === "string" && (channel === "auth" || channel === "organization" || channel === "node")
  );
}

function readerOf(connection: () => Connection): Reader {
  return {
    all: async (sql, params = []) =>
      attempt(() => {
        const rows = connection()
          .prepare(sql)
          .all(...params);
        return rows.filter(isRow);
      }),
    get: async (sql, params = []) =>
      attempt(() =>
        rowOf(
          connection()
            .prepare(sql)
            .get(...params),
        ),
      ),
  };
}

function rowOf(row: unknown): Row | undefined {
  return isRow(row) ? row : undefined;
}

/** STRICT tables hold nothing else; the readers of columns look at each value again. */
function isRow(row: unknown): row is Row {
  return typeof row === "object" && row !== null;
}

function attempt<T>(act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw translate(error);
  }
}

const storageCodes = /^SQLITE_(FULL|IOERR|BUSY|LOCKED|READONLY|CANTOPEN|NOMEM|PROTOCOL|CORRUPT|NOTADB)/;

function isUnavailable(error: unknown): boolean {
  return error instanceof AppError && error.code === "storage_unavailable";
}

function metInputOutputError(error: unknown): boolean {
  const cause = error instanceof AppError ? error.details.cause : undefined;
  return cause instanceof SQLiteError && (cause.code ?? "").startsWith("SQLITE_IOERR");
}

function translate(error: unknown): unknown {
  if (!(error instanceof SQLiteError)) return error;
  const code = error.code ?? "";
  if (storageCodes.test(code)) {
    return new AppError("storage_unavailable", `The database cannot be used now: ${error.message}`, {
      cause: error,
      retryAfter: 5,
    });
  }
  if (/^SQLITE_CONSTRAINT_(UNIQUE|PRIMARYKEY)/.test(code)) {
    return new NotUnique(error.message.replace(/^UNIQUE constraint failed: /, ""), error);
  }
  return error;
}
