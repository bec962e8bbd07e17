// Copies and checks SQLite files: a consistent copy of a file in use, and an integrity check. Knows no table.

import { Database as Sqlite, SQLiteError } from "bun:sqlite";
import { closeSync, existsSync, fsyncSync, openSync, rmSync } from "node:fs";
import { AppError, fromSystemError, messageOf } from "../../errors.ts";
import { createFileFor, type FileOwner } from "../../files.ts";

/**
 * Copies a database into a new file of mode 0600, also while other processes write to it. A copy that root makes belongs
 * to `owner`.
 */
export function copyDatabase(from: string, to: string, owner?: FileOwner): void {
  const source = new Sqlite(from, { readwrite: true });
  try {
    source.run("PRAGMA busy_timeout = 5000");
    // Create the file first: SQLite would use the umask's mode.
    closeSync(createFileFor(to, 0o600, owner));
    source.run("VACUUM INTO ?", [to]);
    syncFile(to);
  } catch (error) {
    rmSync(to, { force: true });
    if (!(error instanceof SQLiteError)) throw fromSystemError(`write ${to}`, error);
    throw new AppError(
      error.code === "SQLITE_FULL" ? "disk_full" : "failed",
      `Cannot copy ${from} to ${to}: ${error.message}`,
      { cause: error },
    );
  } finally {
    source.close();
  }
}

/** Checks every page of a file that no process uses, and removes its write-ahead log. Throws failed with the damage. */
export function checkDatabase(path: string): void {
  let database: Sqlite | undefined;
  try {
    database = new Sqlite(path, { readwrite: true });
    const findings = [
      ...rowsOf(database, "PRAGMA integrity_check"),
      ...rowsOf(database, "PRAGMA foreign_key_check"),
    ];
    if (findings.join() !== "ok")
      throw new AppError("failed", `${path} is damaged: ${findings.slice(0, 3).join("; ")}`);
    database.run("PRAGMA journal_mode = DELETE");
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError("failed", `${path} is not a complete database: ${messageOf(error)}`, { cause: error });
  } finally {
    database?.close();
  }
  syncFile(path);
}

/**
 * Whether no other process uses the file and it has no write-ahead log. SQLite would apply a log that is left over to
 * the file that replaces this one.
 */
export function isAlone(path: string): boolean {
  const database = new Sqlite(path, { readwrite: true });
  try {
    database.run("PRAGMA journal_mode = DELETE");
  } catch (error) {
    if (error instanceof SQLiteError && error.code === "SQLITE_BUSY") return false;
    throw new AppError("failed", `Cannot move ${path} away: ${messageOf(error)}`, { cause: error });
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
