// The control plane's default store: one SQLite file. Writes that come in one turn of the event loop share one commit
// (synchronous=FULL: durable), and a write that fails is undone alone. Knows no table but `notices`.

import { SQLiteError, type Database as Sqlite, type Statement } from "bun:sqlite";
import { statSync } from "node:fs";
import { formatTime } from "../../../base/quantities.ts";
import { AppError } from "../../../base/errors.ts";
import {
  NotUnique,
  requireStorable,
  type Database,
  type Reader,
  type Row,
  type Transaction,
  type Value,
} from "../database.ts";
import { migrate, newestVersion, versionOf } from "../migrations.ts";
import {
  isKnown,
  makeListeners,
  newestNoticeSql,
  noticesAfterSql,
  parseNotice,
  type Notice,
} from "../notices.ts";
import { watchFile } from "../damage.ts";
import { copyDatabase, examinePages, openFile } from "./files.ts";
import { notices as noticesTable } from "../tables/servers.ts";
import { lostDatabase } from "../database-mark.ts";
import { makeWriteQueue, type Committed, type Work } from "../write-queue.ts";

export type SqliteOptions = {
  path: string;
  now(): number;
  /**
   * `server` notices the commits of other processes within `pollMs`. `visitor` (the admin commands) leaves notices in
   * the file for it.
   */
  role: "server" | "visitor";
  pollMs?: number;
  /** The file is a copy already: make no other copy before a migration. */
  isCopy?: boolean;
  /** This directory had a database: throw bad_configuration if the file is missing. */
  isBegun?: boolean;
};

/** Servers read every `pollMs`: older notices have been read. */
const keptMs = 3_600_000;

type Connection = { sqlite: Sqlite; prepare(sql: string): Statement; close(): void };

/** Opens or creates the file and brings its tables up to date. */
export async function openSqlite(options: SqliteOptions): Promise<Database> {
  let writer = attempt(() => connect(options.path));
  let reads = attempt(() => connect(options.path));
  const { listen, tell } = makeListeners();
  const { note, examined, damage } = watchFile(options.path);

  // Do not trust a connection after an I/O error. While the disk still fails, keep the present connections. SQLite opens a
  // file that it may not write for reading only, and never looks again. A file that is missing is no reason to make a new one.
  const reconnect = () => {
    try {
      const fresh = [connect(options.path, false), connect(options.path, false)] as const;
      writer.close();
      reads.close();
      [writer, reads] = fresh;
    } catch (error) {
      if (!(error instanceof SQLiteError || error instanceof AppError)) throw error;
    }
  };
  const commit = async (batch: readonly Work[]) => {
    try {
      return await commitTogether(writer, batch, options);
    } catch (error) {
      const refused = translate(error);
      note(refused);
      if (mayBeStale(refused)) reconnect();
      throw refused;
    }
  };
  // The file allows one transaction at a time, so all writes share one line.
  const queue = makeWriteQueue(commit, tell, { maxBatch: Infinity, width: 1 });
  let watch: Watch | undefined;
  const database: Database = {
    ...readerOf(() => reads, note),
    dialect: "sqlite",
    damage,
    async examine(system) {
      const begun = performance.now();
      examined(await examinePages(options.path, system), begun);
    },
    write: queue.write,
    writeFor: queue.writeFor,
    noticesBehindMs: () => 0,
    hasHeardAll: () => watch?.look() ?? false,
    listen,
    async close() {
      await queue.close();
      watch?.stop();
      reads.close();
      writer.close();
    },
  };
  if (options.isBegun === true && (await isBlank(database))) {
    await database.close();
    throw lostDatabase(options.path, "is empty");
  }
  if (options.isCopy !== true) await copyBeforeMigration(database, options);
  await migrate(database, options.now());
  if (options.role === "server") watch = watchOthers(() => writer, options.pollMs ?? 250, tell);
  return database;
}

async function isBlank(reader: Reader): Promise<boolean> {
  return (await reader.get("SELECT name FROM sqlite_master WHERE name = 'migrations'")) === undefined;
}

/** Before a migration, copies the database to a file beside it: `control.db.v1-2026-11-21T14-00-00Z`. */
async function copyBeforeMigration(database: Reader, { path, now }: SqliteOptions): Promise<void> {
  if (await isBlank(database)) return;
  const version = await versionOf(database);
  if (version === 0 || version >= newestVersion) return;
  copyDatabase(path, `${path}.v${version}-${formatTime(now()).replaceAll(":", "-")}`, statSync(path));
}

function connect(path: string, create = true): Connection {
  const sqlite = openFile(path, { create });
  // Must come first: without it, two processes that open the file at once fail instead of waiting.
  sqlite.run("PRAGMA busy_timeout = 5000");
  sqlite.run("PRAGMA journal_mode = WAL");
  sqlite.run("PRAGMA synchronous = FULL");
  sqlite.run("PRAGMA foreign_keys = ON");
  const statements = new Map<string, Statement>();
  return {
    sqlite,
    // Database.query() caches only 20 statements. SQLite takes `$1` for a name and numbers it by its first appearance;
    // its `?1` means what `$1` means to PostgreSQL.
    prepare(sql) {
      let statement = statements.get(sql);
      if (statement === undefined) {
        statements.set(sql, (statement = sqlite.prepare(sql.replace(/\$(?=\d)/g, "?"))));
      }
      return statement;
    },
    close() {
      // A statement that is not finalized keeps the file and its write-ahead log open.
      for (const statement of statements.values()) statement.finalize();
      statements.clear();
      sqlite.close();
    },
  };
}

/**
 * Runs the works in one transaction, one after another. First without savepoints, because each costs as much as a
 * statement and works seldom fail. If one fails, runs all of them again, each in a savepoint.
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
      if (options.role === "visitor") {
        await leaveNotices(transactionOn(connection, [], "everything"), committed.notices, options.now());
      }
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

/** Throws the first failure. */
async function runAll(connection: Connection, batch: readonly Work[]): Promise<Committed> {
  const notices: Notice[] = [];
  for (const work of batch) await work.run(transactionOn(connection, notices, work.concerns));
  return { settle: batch.map(({ done }) => done), notices };
}

/** Each work in a savepoint: a work that fails is undone alone. */
async function runApart(connection: Connection, batch: readonly Work[]): Promise<Committed> {
  const { sqlite, prepare } = connection;
  const settle: (() => void)[] = [];
  const notices: Notice[] = [];
  for (const work of batch) {
    const told: Notice[] = [];
    prepare("SAVEPOINT work").run();
    try {
      await work.run(transactionOn(connection, told, work.concerns));
      prepare("RELEASE work").run();
      settle.push(work.done);
      notices.push(...told);
    } catch (error) {
      // A disk error may have rolled back the whole transaction.
      if (isUnavailable(error) || !sqlite.inTransaction) throw error;
      prepare("ROLLBACK TO work").run();
      prepare("RELEASE work").run();
      settle.push(() => work.failed(error));
    }
  }
  return { settle, notices };
}

function transactionOn(
  connection: Connection,
  told: Notice[],
  concerns: Transaction["concerns"],
): Transaction {
  return {
    ...readerOf(() => connection),
    dialect: "sqlite",
    concerns,
    run: async (sql, params = []) =>
      attempt(() => connection.prepare(sql).run(...requireStorable(params)).changes),
    notify: async (channel, payload) => void told.push({ channel, payload }),
    pause: () => new Promise((resolve) => void setImmediate(resolve)),
  };
}

async function leaveNotices(tx: Transaction, notices: readonly Notice[], now: number): Promise<void> {
  for (const notice of notices) await noticesTable.insert(tx, { ...notice, createdAt: now });
  if (notices.length > 0) await tx.run("DELETE FROM notices WHERE created_at < $1", [now - keptMs]);
}

type Watch = {
  /** Passes on what other processes left until now. False if the file cannot be read at this moment. */
  look(): boolean;
  stop(): void;
};

/** Passes on the notices that other processes leave. While there are none, each look costs one cheap pragma. */
function watchOthers(
  connection: () => Connection,
  everyMs: number,
  tell: (notices: readonly Notice[]) => void,
): Watch {
  const one = (sql: string) => Object.values(rowOf(connection().prepare(sql).get()) ?? {})[0] ?? null;
  let version: Value = null;
  let last: Value = one(newestNoticeSql);
  const look = () => {
    try {
      const now = one("PRAGMA data_version");
      if (now === version) return true;
      const found = connection().prepare(noticesAfterSql).all(last).filter(isRow).map(parseNotice);
      version = now;
      last = found.at(-1)?.id ?? last;
      tell(found.filter(isKnown));
      return true;
    } catch (error) {
      // The file is busy or the disk fails. `version` is unchanged, so the next look reads them.
      if (!(error instanceof SQLiteError)) throw error;
      return false;
    }
  };
  const timer = setInterval(look, everyMs);
  timer.unref();
  return { look, stop: () => clearInterval(timer) };
}

function readerOf(connection: () => Connection, note: (error: unknown) => void = () => undefined): Reader {
  return {
    all: async (sql, params = []) =>
      attempt(() => {
        const rows = connection()
          .prepare(sql)
          .all(...requireStorable(params));
        return rows.filter(isRow);
      }, note),
    get: async (sql, params = []) =>
      attempt(
        () =>
          rowOf(
            connection()
              .prepare(sql)
              .get(...requireStorable(params)),
          ),
        note,
      ),
  };
}

function rowOf(row: unknown): Row | undefined {
  return isRow(row) ? row : undefined;
}

/** STRICT tables hold only `Value`s, and the parsers of tables check each one. */
function isRow(row: unknown): row is Row {
  return typeof row === "object" && row !== null;
}

function attempt<T>(act: () => T, note: (error: unknown) => void = () => undefined): T {
  try {
    return act();
  } catch (error) {
    const translated = translate(error);
    note(translated);
    throw translated;
  }
}

const storageCodes = /^SQLITE_(FULL|IOERR|BUSY|LOCKED|READONLY|CANTOPEN|NOMEM|PROTOCOL|CORRUPT|NOTADB)/;

function isUnavailable(error: unknown): boolean {
  return error instanceof AppError && error.code === "storage_unavailable";
}

function causeOf(error: unknown): SQLiteError | undefined {
  const cause = error instanceof AppError ? error.details.cause : undefined;
  return cause instanceof SQLiteError ? cause : undefined;
}

/** Whether another connection may succeed. */
function mayBeStale(error: unknown): boolean {
  return /^SQLITE_(IOERR|READONLY|CANTOPEN)/.test(causeOf(error)?.code ?? "");
}

/** What to do, as far as the error code tells. */
const hints: readonly [RegExp, string][] = [
  [/^SQLITE_FULL/, "Make space on its disk."],
  [
    /^SQLITE_READONLY/,
    "Its file system or a file is read-only: look for errors of the disk (`dmesg`) and immutable files (`lsattr`), and make it writable.",
  ],
  [/^SQLITE_IOERR/, "Look for errors of its disk (`dmesg`)."],
];

function hintOf(code: string): { hint?: string } {
  const hint = hints.find(([pattern]) => pattern.test(code))?.[1];
  return hint === undefined ? {} : { hint };
}

function translate(error: unknown): unknown {
  if (!(error instanceof SQLiteError)) return error;
  const code = error.code ?? "";
  if (storageCodes.test(code)) {
    return new AppError("storage_unavailable", `The database cannot be used now: ${error.message}`, {
      cause: error,
      retryAfter: 5,
      ...hintOf(code),
    });
  }
  if (/^SQLITE_CONSTRAINT_(UNIQUE|PRIMARYKEY)/.test(code)) {
    return new NotUnique(error.message.replace(/^UNIQUE constraint failed: /, ""), error);
  }
  return error;
}
