// Copies and checks SQLite files: a consistent copy of a file in use, and an integrity check. Knows no table.

import { defer } from "../../../base/defer.ts";
import { Database as Sqlite, SQLiteError } from "bun:sqlite";
import { closeSync, existsSync, fsyncSync, rmSync } from "node:fs";
import { constants, setPriority } from "node:os";
import { pagesWord } from "../../../brand.ts";
import { AppError, fromSystemError, messageOf } from "../../../base/errors.ts";
import { damageIn } from "./errors.ts";
import { refuseForeignEntry } from "../own-data.ts";
import { createFileFor, type FileOwner } from "../../../base/files.ts";
import type { System } from "../../../base/system.ts";
import { openPlain, refuseOddFile, sqliteFiles } from "../../../base/open-file.ts";

/**
 * Opens a file that is there, or with `create` a new one. Every SQLite file of the control plane is opened here. It is checked
 * again once it is open, and before SQLite reads or writes anything: it may have been exchanged for a link meanwhile.
 */
export function openFile(path: string, { create = false } = {}): Sqlite {
  refuseForeignOrOdd(path);
  const database = new Sqlite(path, { readwrite: true, create, strict: true });
  try {
    refuseForeignOrOdd(path);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/**
 * Throws foreign_files for files of other users, and refuses what is no plain file: SQLite would wait for the writer of a FIFO, in
 * the database's place or in that of its journal.
 */
function refuseForeignOrOdd(path: string): void {
  for (const each of sqliteFiles(path)) {
    refuseForeignEntry(each);
    refuseOddFile(each);
  }
}

/**
 * Copies a database into a new file of mode 0600, also while other processes write to it. A copy that root makes belongs
 * to `owner`.
 */
export function copyDatabase(from: string, to: string, owner?: FileOwner): void {
  using source = openFile(from);
  try {
    // Create the file first: SQLite would use the umask's mode. A file that is there already is refused, and stays.
    closeSync(createFileFor(to, 0o600, owner));
  } catch (error) {
    throw fromSystemError(`write ${to}`, error);
  }
  try {
    source.run("PRAGMA busy_timeout = 5000");
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
  }
}

/**
 * What is damaged in a file that is in use; undefined: nothing. SQLite reads every page for it, which would keep this process
 * from all else: about a second for 500 MB. Throws failed if it cannot be examined.
 */
export async function examinePages(
  path: string,
  { run, executable }: Pick<System, "run" | "executable">,
): Promise<string | undefined> {
  const { status, stdout, stderr } = await run([executable, pagesWord, path], { timeoutMs: 3_600_000 });
  if (status === 0) return undefined;
  const [, damage] = /^damage: (.{1,300})/.exec(stdout) ?? [];
  if (damage !== undefined) return damage;
  const reason = stderr.trim().split("\n")[0] || `its process ended with ${status}`;
  throw new AppError("failed", `Cannot examine the database: ${reason}`);
}

/** Runs in the child process of `examinePages`, with low priority where the machine permits it. Returns the exit status. */
export function answerAsPagesChild(path: string, { stdout }: Pick<System, "stdout">): number {
  try {
    setPriority(constants.priority.PRIORITY_LOW);
  } catch {
    // The sandbox of a unit forbids it.
  }
  const damage = damageOfPages(path);
  if (damage !== undefined) stdout.write(`damage: ${damage}\n`);
  return damage === undefined ? 0 : 1;
}

/** The damage of a file, which may be in use; undefined if it is whole. Reads every page, in this process. */
export function damageOfPages(path: string): string | undefined {
  const database = openFile(path);
  try {
    database.run("PRAGMA busy_timeout = 5000");
    const [found = ""] = valuesOf(database, "PRAGMA quick_check(1)").map((row) => row.join(" "));
    // Its first line names the database.
    return found === "ok" ? undefined : found.replace(/^\*\*\*.*\n/, "").replaceAll("\n", " ");
  } catch (error) {
    const damage = damageIn(error);
    if (damage !== undefined) return damage;
    throw error;
  } finally {
    database.close();
  }
}

/** Checks every page of a file that no process uses, and removes its write-ahead log. Throws failed with the damage. */
export function checkDatabase(path: string): void {
  withFile(path, (database) => {
    const findings = [
      ...valuesOf(database, "PRAGMA integrity_check"),
      ...valuesOf(database, "PRAGMA foreign_key_check"),
    ].map((row) => row.join(" "));
    if (findings.join() !== "ok")
      throw new AppError("failed", `${path} is damaged: ${findings.slice(0, 3).join("; ")}`);
    database.run("PRAGMA journal_mode = DELETE");
  });
  syncFile(path);
}

/** Closes the file after the work. Throws failed for a file that is no complete database, and the AppErrors of the work. */
export function withFile<T>(path: string, work: (database: Sqlite) => T): T {
  let database: Sqlite | undefined;
  try {
    database = openFile(path);
    return work(database);
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError("failed", `${path} is not a complete database: ${messageOf(error)}`, { cause: error });
  } finally {
    database?.close();
  }
}

/** Reads every page of a file that may be in use, in this process. */
export function isWhole(path: string): boolean {
  try {
    return damageOfPages(path) === undefined;
  } catch {
    return false;
  }
}

/**
 * Whether no other process uses the file and it has no write-ahead log. SQLite would apply a log that is left over to
 * the file that replaces this one.
 */
export function isAlone(path: string): boolean {
  const database = openFile(path);
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

/**
 * Rewrites the file, also while other processes use it, so that it and its write-ahead log hold nothing that was replaced
 * or deleted. Writes of other processes wait meanwhile. Throws busy while another process reads an older state.
 */
export function removeTraces(path: string): void {
  const database = openFile(path);
  try {
    database.run(`PRAGMA busy_timeout = ${busyMs}`);
    database.run("VACUUM");
    emptyLog(database, path);
  } catch (error) {
    if (!(error instanceof SQLiteError)) throw error;
    const isFull = error.code === "SQLITE_FULL";
    const otherCode = error.code === "SQLITE_BUSY" ? "busy" : "failed";
    throw new AppError(isFull ? "disk_full" : otherCode, `Cannot rewrite ${path}: ${error.message}`, {
      cause: error,
      hint: isFull ? `Free twice the size of ${path}. ${runAgain}` : runAgain,
    });
  } finally {
    database.close();
  }
}

/**
 * SQLite waits for readers, but not for a checkpoint of another process, which each large write of a server brings: that is
 * over soon.
 */
function emptyLog(database: Sqlite, path: string): void {
  const end = performance.now() + emptyWithinMs;
  for (;;) {
    const begun = performance.now();
    const [row = []] = valuesOf(database, "PRAGMA wal_checkpoint(TRUNCATE)");
    const [isBusy, pages, moved] = row.map(Number);
    if (isBusy === 0) return;
    // SQLite has waited in vain, and pages stay in the log: a reader may still need them.
    const isBlocked = performance.now() - begun >= busyMs && (moved ?? 0) < (pages ?? 0);
    if (isBlocked || performance.now() > end)
      throw new AppError("busy", `Another process reads ${path}`, { hint: runAgain });
    Bun.sleepSync(Math.random() * 50);
  }
}

const busyMs = 5000;
const emptyWithinMs = 30_000;

const runAgain = "Run the command again; it continues where it stopped.";

/** A statement that is not finalized would keep the file and its write-ahead log open after close(). */
export function valuesOf(database: Sqlite, sql: string): unknown[][] {
  using statement = database.prepare(sql);
  return statement.values();
}

function syncFile(path: string): void {
  const fd = openPlain(path, "update");
  using _ = defer(() => closeSync(fd));
  fsyncSync(fd);
}
