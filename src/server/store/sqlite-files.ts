// SQLite files as files: a consistent copy of one that is in use, and whether a copy is whole. Knows no table.

import { Database as Sqlite, SQLiteError } from "bun:sqlite";
import { closeSync, existsSync, fsyncSync, openSync, rmSync } from "node:fs";
import { AppError, fromSystemError, messageOf } from "../../errors.ts";

/** Copies a database, one that others write to included, into a new file of mode 0600. */
export function copyDatabase(from: string, to: string): void {
  const source = new Sqlite(from, { readwrite: true });
  try {
    source.run("PRAGMA busy_timeout = 5000");
    // Made before SQLite does, which would take the umask's mode.
    closeSync(openSync(to, "wx", 0o600));
    source.run("VACUUM INTO ?", [to]);
    syncFile(to);
  } catch (error) {
    rmSync(to, { force: true });
    if (!(error instanceof SQLiteError)) throw fromSystemError(`write ${to}`, error);
    throw new AppError(
      error.code === "SQLITE_FULL" ? "disk_full" : "failed",
      `Cannot copy ${from} to ${to}: ${error.message}`,
      {
        cause: error,
      },
    );
  } finally {
    source.close();
  }
}

/** Reads every page of a file that nobody else uses, and leaves it a single file. Throws failed with what is broken. */
export function checkDatabase(path: string): void {
  let database: Sqlite | undefined;
  try {
    database = new Sqlite(path, { readwrite: true });
    const words = [
      ...rowsOf(database, "PRAGMA integrity_check"),
      ...rowsOf(database, "PRAGMA foreign_key_check"),
    ];
    if (words.join() !== "ok")
      throw new AppError("failed", `${path} is damaged: ${words.slice(0, 3).join("; ")}`);
    database.run("PRAGMA journal_mode = DELETE");
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError("failed", `${path} is no whole database: ${messageOf(error)}`, { cause: error });
  } finally {
    database?.close();
  }
  syncFile(path);
}

/**
 * Whether the file is whole by itself and in nobody else's hands. The write-ahead log of another process would be taken
 * for the log of what is put in the file's place.
 */
export function isAlone(path: string): boolean {
  const database = new Sqlite(path, { readwrite: true });
  try {
    database.run("PRAGMA journal_mode = DELETE");
  } catch (error) {
    if (error instanceof SQLiteError && error.code === "SQLITE_BUSY") return false;
    throw new AppError("failed", `Cannot set ${path} aside: ${messageOf(error)}`, { cause: error });
  } finally {
    database.close();
  }
  return !existsSync(`${path}-wal`);
}

function rowsOf(database: Sqlite, sql: string): string[] {
  return database
    .prepare(sql)
    .values()
    .map((row) => row.join(" "));
}

function syncFile(path: string): void {
  const fd = openSync(path, "r+");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
