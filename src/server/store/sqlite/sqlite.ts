// The control plane's default store: one SQLite file. Writes that come in one turn of the event loop share one commit
// (synchronous=FULL: durable), and a write that fails is undone alone. Knows no table but `notices` and `sqlite_master`.

import { SQLiteError } from "bun:sqlite";
import { readdirSync, rmSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { formatTime } from "../../../base/quantities.ts";
import { AppError } from "../../../base/errors.ts";
import { sqliteFiles } from "../../../base/open-file.ts";
import { requireStorable, type Database, type Reader, type Transaction } from "../database.ts";
import { migrate, newestVersion, versionOf } from "../migrations.ts";
import { makeListeners, type Notice } from "../notices.ts";
import { watchFile } from "./damage.ts";
import { connect, readerOf, type Connection } from "./connection.ts";
import { attempt, isUnavailable, mayBeStale, translate } from "./errors.ts";
import { copyDatabase, damageOfPages, examinePages } from "./files.ts";
import { leaveNotices, watchOthers, type Watch } from "./notices.ts";
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

/** Opens or creates the file and brings its tables up to date. */
export async function openSqlite(options: SqliteOptions): Promise<Database> {
  let writer = attempt(() => connect(options.path));
  let reads = attempt(() => connect(options.path));
  const { listen, tell } = makeListeners();
  const { noteError, examined, damage } = watchFile(options.path);

  // Opens new connections after an I/O error: a connection that SQLite could only open for reading never writes again.
  // If that fails, the present connections stay. A missing file is not created.
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
      noteError(refused);
      if (mayBeStale(refused)) reconnect();
      throw refused;
    }
  };
  // The file allows one transaction at a time, so all writes share one line.
  const queue = makeWriteQueue(commit, tell, { maxBatch: Infinity, width: 1, gatherMs: 10 });
  let watch: Watch | undefined;
  const database: Database = {
    ...readerOf(() => reads, noteError),
    dialect: "sqlite",
    damage,
    async examine(system) {
      const begun = performance.now();
      // In the process of a command nothing else waits meanwhile.
      const isServer = options.role === "server";
      examined(isServer ? await examinePages(options.path, system) : damageOfPages(options.path), begun);
    },
    write: queue.write,
    writeFor: queue.writeFor,
    noticesBehindMs: () => 0,
    // A visitor has no watch, and hears no notices.
    hasHeardAll: () => watch?.look() ?? false,
    listen,
    async close() {
      await queue.close();
      watch?.stop();
      reads.close();
      writer.close();
    },
  };
  try {
    if (options.isBegun === true && (await isBlank(database))) throw lostDatabase(options.path, "is empty");
    if (options.isCopy !== true) await copyBeforeMigration(database, options);
    await migrate(database, options.now());
  } catch (error) {
    await database.close();
    throw error;
  }
  if (options.role === "server") watch = watchOthers(() => writer, options.pollMs ?? 250, tell);
  return database;
}

async function isBlank(reader: Reader): Promise<boolean> {
  return (await reader.get("SELECT name FROM sqlite_master WHERE name = 'migrations'")) === undefined;
}

/**
 * Before a migration, copies the database to a file beside it: `control.db.v1-2026-11-21T14-00-00Z`. The newest earlier copy
 * of another version stays, the others are deleted: a server whose migration fails makes a copy at each start.
 */
async function copyBeforeMigration(database: Reader, { path, now }: SqliteOptions): Promise<void> {
  if (await isBlank(database)) return;
  const version = await versionOf(database);
  if (version === 0 || version >= newestVersion) return;
  const earlier = copiesBeside(path);
  const ofVersion = `${path}.v${version}-`;
  copyDatabase(path, `${ofVersion}${formatTime(now()).replaceAll(":", "-")}`, statSync(path));
  // Another process has migrated meanwhile, so the copy may have the new tables: the copies of the old ones stay.
  if ((await versionOf(database)) !== version) return;
  const kept = earlier.findLast((copy) => !copy.startsWith(ofVersion));
  for (const copy of earlier.filter((each) => each !== kept))
    for (const file of sqliteFiles(copy)) rmSync(file, { force: true });
}

/** The copies that migrations made, oldest first. */
function copiesBeside(path: string): string[] {
  const prefix = `${basename(path)}.v`;
  const timeIn = (name: string) => name.slice(name.indexOf("-", prefix.length));
  return readdirSync(dirname(path))
    .filter((name) => name.startsWith(prefix) && /^\d+-[-\dT]+Z$/.test(name.slice(prefix.length)))
    .sort((a, b) => timeIn(a).localeCompare(timeIn(b)))
    .map((name) => join(dirname(path), name));
}

/**
 * Runs the works in one transaction, one after another. First without savepoints, because each costs as much as a
 * statement and works seldom fail. If one fails, runs all of them again, each in a savepoint, so a work must be repeatable.
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
    if (isUnavailable(error)) throw error;
    return inTransaction(runApart);
  }
}

/** Throws the first failure. */
async function runAll(connection: Connection, batch: readonly Work[]): Promise<Committed> {
  const notices: Notice[] = [];
  for (const work of batch) await work.run(transactionOn(connection, notices, work.concerns));
  return { settlers: batch.map(({ done }) => done), notices };
}

/** Each work in a savepoint: a work that fails is undone alone. */
async function runApart(connection: Connection, batch: readonly Work[]): Promise<Committed> {
  const { sqlite, prepare } = connection;
  const settlers: (() => void)[] = [];
  const notices: Notice[] = [];
  for (const work of batch) {
    const ownNotices: Notice[] = [];
    prepare("SAVEPOINT work").run();
    try {
      await work.run(transactionOn(connection, ownNotices, work.concerns));
      prepare("RELEASE work").run();
      settlers.push(work.done);
      notices.push(...ownNotices);
    } catch (error) {
      // A disk error may have rolled back the whole transaction.
      if (isUnavailable(error) || !sqlite.inTransaction) throw error;
      prepare("ROLLBACK TO work").run();
      prepare("RELEASE work").run();
      settlers.push(() => work.failed(error));
    }
  }
  return { settlers, notices };
}

function transactionOn(
  connection: Connection,
  notices: Notice[],
  concerns: Transaction["concerns"],
): Transaction {
  return {
    ...readerOf(() => connection),
    dialect: "sqlite",
    concerns,
    run: async (sql, params = []) =>
      attempt(() => connection.prepare(sql).run(...requireStorable(params)).changes),
    notify: async (channel, payload) => void notices.push({ channel, payload }),
    pause: () => new Promise((resolve) => void setImmediate(resolve)),
  };
}
