// The daemon's state across restarts: a SQLite file as a key-value store. A damaged file is renamed and a new one created.
// Everything in it can be rebuilt from the config root, except which organizations a user has stopped: of these there is a copy
// (stopped-copy.ts). `path` is always that of the database.

import { defer } from "../base/defer.ts";
import { Database } from "bun:sqlite";
import { chmodSync, existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { jsonText } from "../base/text.ts";
import { brand } from "../brand.ts";
import { AppError, because, fromSystemError } from "../base/errors.ts";
import { systemErrorCode } from "../base/system-errors.ts";
import { writeNewFile } from "../base/files.ts";
import { readBytes, readText, refuseOddFile, sqliteFiles } from "../base/open-file.ts";
import type { Log } from "../base/log.ts";
import { lockFile, type FileLock } from "../platform/file-lock.ts";
import { OrganizationRecord } from "./organization-record.ts";
import { isStateOf } from "./state-root.ts";
import { openStoppedCopy, stoppedCopyPath } from "./stopped-copy.ts";

export type StateStore = {
  records(): Map<string, OrganizationRecord>;
  /** Durable when it returns. Throws AppError("disk_full") without changing anything if there is no room. */
  putRecord(slug: string, record: OrganizationRecord): void;
  /** Stores the records and the active organization together, or nothing, also in a power cut. */
  putRecords(records: ReadonlyMap<string, OrganizationRecord>, active: string | undefined): void;
  /** Called when an organization is no longer registered. */
  removeRecord(slug: string): void;
  /** The organization that a user switched to last. */
  active(): string | undefined;
  setActive(slug: string | undefined): void;
  /** A sentence for the user, if the records were lost before this start. */
  readonly loss: string | undefined;
  close(): void;
};

const recordPrefix = "team/";
const activeKey = "active";

type StateLog = Pick<Log, "warn" | "error">;

export function openState(path: string, log: StateLog, now: () => number): StateStore {
  const { database, damagedPath } = openOrReplace(path, log, now);
  const put = database.query(
    "INSERT INTO entry (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2",
  );
  const remove = database.query("DELETE FROM entry WHERE key = ?1");
  const read = database.query<{ key: string; value: string }, [string]>(
    "SELECT key, value FROM entry WHERE key GLOB ?1",
  );
  let active = read.get(activeKey)?.value;
  const storeActive = (slug: string | undefined) =>
    slug === undefined ? remove.run(activeKey) : put.run(activeKey, slug);
  const write = (statements: () => unknown) => {
    try {
      statements();
    } catch (error) {
      throw storeError(error, path);
    }
  };
  const readRecords = (onUnreadable: (slug: string) => void) =>
    new Map(read.all(`${recordPrefix}*`).flatMap(({ key, value }) => readRecord(key, value, onUnreadable)));
  // A record that only the copy of stopped organizations has was lost: write it again.
  const copy = openStoppedCopy(path, log);
  const stored = readRecords(() => undefined);
  const lost = new Map([...copy.read()].filter(([slug]) => !stored.has(slug)));
  copy.keep(new Map([...lost, ...stored]));
  for (const [slug, record] of lost) {
    try {
      put.run(recordPrefix + slug, JSON.stringify(record));
    } catch (error) {
      // On a full disk, records are only in memory and in the copy.
      log.warn("Cannot write again what was lost", because(slug, error));
    }
  }
  return {
    loss: describeLoss(path, damagedPath, lost.size),
    // What was lost may be missing in the database, if its disk is full.
    records: () => new Map([...lost, ...readRecords(warnOfUnreadable(log))]),
    putRecord(slug, record) {
      write(() => put.run(recordPrefix + slug, JSON.stringify(record)));
      copy.keep(new Map([[slug, record]]));
    },
    putRecords(records, newActive) {
      const together = database.transaction(() => {
        for (const [each, record] of records) put.run(recordPrefix + each, JSON.stringify(record));
        storeActive(newActive);
      });
      write(together);
      copy.keep(records);
      active = newActive;
    },
    removeRecord(slug) {
      // The copy first: if it alone remained, a later registration of this name would be stopped.
      copy.remove(slug);
      lost.delete(slug);
      write(() => remove.run(recordPrefix + slug));
      if (active === slug) this.setActive(undefined);
    },
    active: () => active,
    setActive(slug) {
      write(() => storeActive(slug));
      active = slug;
    },
    close: () => database.close(),
  };
}

/**
 * Removes the record of an organization that is no longer registered, while no daemon runs: else a later registration of
 * the same name would begin with the former desired state. False if a daemon holds the database.
 */
export function removeRecordWithoutDaemon(
  path: string,
  slug: string,
  log: StateLog,
  now: () => number,
  configRoot: string,
): boolean {
  if (!isThere(path) || !isStateOf(path, configRoot)) return true;
  const lock = lockState(path);
  if (lock === undefined) return false;
  using _ = defer(() => lock.release());
  const store = openState(path, log, now);
  try {
    store.removeRecord(slug);
  } finally {
    store.close();
  }
  return true;
}

/** What `status` tells. `damagedPath`: of the renamed database. `count`: of records that the copy still had. */
function describeLoss(path: string, damagedPath: string | undefined, count: number): string | undefined {
  const stopped =
    count === 0 ? "No organization was known to be stopped" : "Stopped organizations stay stopped";
  if (damagedPath !== undefined)
    return `The state database was damaged, and is kept as ${damagedPath}. ${stopped}`;
  return count === 0 ? undefined : `${path} had lost what it knew. ${stopped}`;
}

/** Whether there is a state: the database, or the copy of stopped organizations. */
const isThere = (path: string): boolean => [path, stoppedCopyPath(path)].some((each) => existsSync(each));

/** Held by the daemon that uses the database, with its process id. */
export const stateLockPath = (path: string): string => `${path}.lock`;
export const lockState = (path: string): FileLock | undefined =>
  lockFile(stateLockPath(path), { note: String(process.pid) });

/** The process that holds the lock. Undefined where that is not known: it is of an earlier version, or this user may not read it. */
export function stateHolder(path: string): number | undefined {
  try {
    return Number(readText(stateLockPath(path), 64)) || undefined;
  } catch {
    return undefined;
  }
}

/** How often files that change are read again. A daemon writes a few times a minute. */
const mostReadings = 20;

/** The records for a plan. Reads a copy, because SQLite creates files beside a database that it only reads. */
export function peekRecords(
  path: string,
  log: StateLog,
  now: () => number,
  configRoot: string,
  read: typeof readBytes = readBytes,
): Map<string, OrganizationRecord> {
  if (!isThere(path) || !isStateOf(path, configRoot)) return new Map();
  const directory = mkdtempSync(join(tmpdir(), `${brand.executable}-`));
  const copy = join(directory, "state.db");
  try {
    for (const [suffix, bytes] of readTogether(path, read)) writeNewFile(copy + suffix, bytes, 0o600);
    // The copy is replaced here, the database itself at the daemon's start.
    const damage = `${path} is damaged: the daemon would rename it and create a new one`;
    const store = openState(copy, { warn: log.warn, error: () => log.warn(damage) }, now);
    using _ = defer(() => store.close());
    return store.records();
  } catch (error) {
    throw fromSystemError(`read a copy of ${path}`, error);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/**
 * The files of the state by suffix, as they were at one moment. A running daemon admits no second connection, and may write between
 * two reads: then they are read again.
 */
function readTogether(path: string, read: typeof readBytes): Map<string, Buffer> {
  const readAll = () =>
    new Map(
      ["", "-wal", ".stopped"]
        .filter((suffix) => existsSync(path + suffix))
        .map((suffix) => [suffix, read(path + suffix)]),
    );
  let files = readAll();
  for (let again = 0; again < mostReadings; again++) {
    const before = files;
    files = readAll();
    if (Bun.deepEquals(before, files)) break;
  }
  return files;
}

const warnOfUnreadable = (log: StateLog) => (slug: string) =>
  log.warn("Ignored an unreadable record in the state database", { team: slug });

/** No entry if the record cannot be read. */
function readRecord(
  key: string,
  value: string,
  onUnreadable: (slug: string) => void,
): [string, OrganizationRecord][] {
  const slug = key.slice(recordPrefix.length);
  const parsed = v.safeParse(jsonText(OrganizationRecord), value);
  if (parsed.success) return [[slug, parsed.output]];
  onUnreadable(slug);
  return [];
}

/** Opens the database. Renames a damaged one to `damagedPath` and creates a new one. */
function openOrReplace(
  path: string,
  log: StateLog,
  now: () => number,
): { database: Database; damagedPath?: string } {
  try {
    return { database: open(path) };
  } catch (error) {
    if (!isDamage(error)) throw storeError(error, path);
    const damagedPath = `${path}.damaged-${new Date(now()).toISOString().replaceAll(/[-:]|\.\d+/g, "")}`;
    log.error("The state database is damaged: renamed it and created a new one", { aside: damagedPath });
    renameSync(path, damagedPath);
    for (const suffix of ["-wal", "-shm"]) rmSync(path + suffix, { force: true });
    return { database: open(path), damagedPath };
  }
}

function open(path: string): Database {
  sqliteFiles(path).forEach(refuseOddFile);
  const database = new Database(path, { create: true, strict: true });
  try {
    chmodSync(path, 0o600);
    database.run("PRAGMA busy_timeout = 5000");
    // There are no other readers. Without the shared-memory file it can be opened even on a full disk.
    database.run("PRAGMA locking_mode = EXCLUSIVE");
    database.run("PRAGMA journal_mode = WAL");
    database.run("PRAGMA synchronous = FULL");
    // One small table: a larger page cache only costs memory.
    database.run("PRAGMA cache_size = -256");
    const verdict = database.query<{ quick_check: string }, []>("PRAGMA quick_check(1)").get();
    if (verdict?.quick_check !== "ok") throw new Damaged(String(verdict?.quick_check));
    database.run(
      "CREATE TABLE IF NOT EXISTS entry (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    );
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

class Damaged extends Error {}

function isDamage(error: unknown): boolean {
  return error instanceof Damaged || /^SQLITE_(CORRUPT|NOTADB)/.test(systemErrorCode(error) ?? "");
}

function storeError(error: unknown, path: string): AppError {
  if (
    systemErrorCode(error) === "SQLITE_FULL" ||
    /^SQLITE_IOERR_(WRITE|SHMSIZE|TRUNCATE)/.test(systemErrorCode(error) ?? "")
  ) {
    return new AppError("disk_full", `Cannot write ${path}: no space left on the disk`, {
      cause: error,
      hint: "Nothing was changed. Free some space and run the command again.",
    });
  }
  return fromSystemError(`use the state database ${path}`, error);
}
