// The daemon's state across restarts: SQLite as a key-value store. A damaged file is renamed and a new one created.
// Everything in it can be rebuilt from the config root, except which organizations a user has stopped: for these
// there is a copy.

import { defer } from "../base/defer.ts";
import { Database } from "bun:sqlite";
import { chmodSync, existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { brand } from "../brand.ts";
import { AppError, fromSystemError, messageOf, systemErrorCode } from "../base/errors.ts";
import { readTextIfThere, writeFileAtomic, writeNewFile } from "../base/files.ts";
import { readBytes, refuseOddFile, sqliteFiles } from "../base/open-file.ts";
import type { Log } from "../base/log.ts";
import { ConfirmationAnswer } from "../protocol/confirmation.ts";
import { hasOrganizations, isSameRoot } from "../platform/config-root.ts";
import { lockFile } from "../platform/file-lock.ts";
import { quoteWord } from "../base/plan.ts";

const text = v.pipe(v.string(), v.maxLength(255));

/** The keys are stored, and earlier versions wrote them: they must not change. */
export const OrganizationRecord = v.object({
  /** The state that a user wants. Revocation and restore never change it. */
  wanted: v.picklist(["up", "down"]),
  /** The organization is not loaded again until a client names it or requests `provision`. */
  forgotten: v.optional(v.boolean(), false),
  /** The registration that this record is about. Unset in records of version 0.1.0. */
  registration: v.optional(text),
  /** The engine's process: the next daemon adopts it. */
  process: v.optional(v.object({ pid: v.number(), started: text, startedAt: v.number() })),
  lastCheckinAt: v.optional(text),
  /** The deadline for the user's confirmation, from the last check-in. */
  confirm: v.optional(ConfirmationAnswer),
  /** Keys of the configuration that apply only after a restart of this process. */
  restartPending: v.optional(v.pipe(v.array(text), v.maxLength(1000))),
});
export type OrganizationRecord = v.InferOutput<typeof OrganizationRecord>;

export type StateStore = {
  records(): Map<string, OrganizationRecord>;
  /** Durable when it returns. Throws AppError("disk_full") without changing anything if there is no room. */
  putRecord(slug: string, record: OrganizationRecord): void;
  /** Atomic, also in a power cut. */
  putRecords(records: ReadonlyMap<string, OrganizationRecord>, active: string | undefined): void;
  /** For an organization that is no longer registered. */
  removeRecord(slug: string): void;
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
  const { database, aside } = openOrReplace(path, log, now);
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
  const write = (action: () => unknown) => {
    try {
      action();
    } catch (error) {
      throw storeError(error, path);
    }
  };
  const load = (to: StateLog) =>
    new Map(read.all(`${recordPrefix}*`).flatMap(({ key, value }) => readRecord(key, value, to)));
  const copy = openStoppedCopy(path, log);
  const known = load({ warn() {}, error() {} });
  const lost = new Map([...copy.read()].filter(([slug]) => !known.has(slug)));
  copy.keep(new Map([...lost, ...known]));
  for (const [slug, record] of lost) {
    try {
      put.run(recordPrefix + slug, JSON.stringify(record));
    } catch (error) {
      // On a full disk, records are only in memory and in the copy.
      log.warn("Cannot write again what was lost", { team: slug, reason: messageOf(error) });
    }
  }
  return {
    loss: describeLoss(path, aside, lost.size),
    records: () => new Map([...lost, ...load(log)]),
    putRecord(slug, record) {
      write(() => put.run(recordPrefix + slug, JSON.stringify(record)));
      copy.keep(new Map([[slug, record]]));
    },
    putRecords(records, slug) {
      const together = database.transaction(() => {
        for (const [each, record] of records) put.run(recordPrefix + each, JSON.stringify(record));
        storeActive(slug);
      });
      write(together);
      copy.keep(records);
      active = slug;
    },
    removeRecord(slug) {
      // The copy first: if only it remained, it would stop a later registration.
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
  const lock = lockFile(stateLockPath(path));
  if (lock === undefined) return false;
  using _ = defer(() => lock.release());
  const store = openState(path, log, now);
  store.removeRecord(slug);
  store.close();
  return true;
}

function describeLoss(path: string, aside: string | undefined, count: number): string | undefined {
  const stopped =
    count === 0 ? "No organization was known to be stopped" : "Stopped organizations stay stopped";
  if (aside !== undefined) return `The state database was damaged, and is kept as ${aside}. ${stopped}`;
  return count === 0 ? undefined : `${path} had lost what it knew. ${stopped}`;
}

const isThere = (path: string): boolean => [path, stoppedCopyPath(path)].some((each) => existsSync(each));

/** Beside the database: the records of organizations that a user has stopped. */
export const stoppedCopyPath = (path: string): string => `${path}.stopped`;

const StoppedCopy = v.pipe(v.string(), v.parseJson(), v.record(text, v.unknown()));

function openStoppedCopy(path: string, log: StateLog) {
  const place = stoppedCopyPath(path);
  const stopped = new Map<string, OrganizationRecord>();
  let written = readTextIfThere(place) ?? stoppedText(stopped);
  const save = () => {
    const next = stoppedText(stopped);
    if (next === written) return;
    try {
      writeFileAtomic(place, next, 0o600);
      written = next;
    } catch (error) {
      log.warn("Cannot copy which organizations are stopped", { reason: messageOf(error) });
    }
  };
  return {
    read(): Map<string, OrganizationRecord> {
      const parsed = v.safeParse(StoppedCopy, written);
      const entries = parsed.success ? Object.entries(parsed.output) : [];
      return new Map(
        entries.flatMap(([slug, record]) => {
          const { success, output } = v.safeParse(OrganizationRecord, record);
          return success && output.wanted === "down" ? [[slug, output] as const] : [];
        }),
      );
    },
    keep(records: ReadonlyMap<string, OrganizationRecord>) {
      for (const [slug, record] of records) {
        if (record.wanted === "down") stopped.set(slug, record);
        else stopped.delete(slug);
      }
      save();
    },
    remove(slug: string) {
      stopped.delete(slug);
      save();
    },
  };
}

/** The content of the copy: only what a user decides, so that it seldom changes. */
export function stoppedText(records: ReadonlyMap<string, OrganizationRecord>): string {
  const stopped = [...records]
    .filter(([, { wanted }]) => wanted === "down")
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const entries = stopped.map(([slug, { wanted, forgotten, registration }]) => [
    slug,
    { wanted, forgotten, registration },
  ]);
  return `${JSON.stringify(Object.fromEntries(entries))}\n`;
}

export const stateRootPath = (path: string): string => `${path}.root`;

/**
 * Whether the database is about the organizations of this config root. In another one, an organization of the same name is
 * another node. Databases of earlier versions do not say.
 */
export function isStateOf(path: string, configRoot: string): boolean {
  const root = stateRoot(path);
  return root === undefined || isSameRoot(root, configRoot);
}

function stateRoot(path: string): string | undefined {
  return readTextIfThere(stateRootPath(path))?.trimEnd();
}

/** For the daemon, which holds the lock. Throws conflict if it is about another root that still has organizations. */
export function claimState(path: string, configRoot: string, log: StateLog): void {
  const root = stateRoot(path);
  if (root === configRoot) return;
  if (root !== undefined && !isSameRoot(root, configRoot) && hasOrganizations(root)) {
    throw new AppError(
      "conflict",
      `${path} is about the organizations of ${root}, not those of ${configRoot}`,
      {
        hint: `Give the daemon a database of its own: --state-db-path ${quoteWord(join(configRoot, "state.db"))}`,
      },
    );
  }
  try {
    writeFileAtomic(stateRootPath(path), `${configRoot}\n`, 0o644);
  } catch (error) {
    // On a full disk the daemon still runs.
    log.warn("Cannot note whose organizations the state is about", { reason: messageOf(error) });
  }
}

/** Held by the daemon that uses the database. */
export const stateLockPath = (path: string): string => `${path}.lock`;

/** The records for a plan. Reads a copy, because SQLite creates files beside a database that it only reads. */
export function peekRecords(
  path: string,
  log: StateLog,
  now: () => number,
  configRoot: string,
): Map<string, OrganizationRecord> {
  if (!isThere(path) || !isStateOf(path, configRoot)) return new Map();
  const directory = mkdtempSync(join(tmpdir(), `${brand.executable}-`));
  const copy = join(directory, "state.db");
  try {
    for (const suffix of ["", "-wal", ".stopped"])
      if (existsSync(path + suffix)) writeNewFile(copy + suffix, readBytes(path + suffix), 0o600);
    const damage = `${path} is damaged: the daemon would rename it and create a new one`;
    const store = openState(copy, { warn: log.warn, error: () => log.warn(damage) }, now);
    const records = store.records();
    store.close();
    return records;
  } catch (error) {
    throw fromSystemError(`read a copy of ${path}`, error);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function readRecord(key: string, value: string, log: StateLog): [string, OrganizationRecord][] {
  const slug = key.slice(recordPrefix.length);
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), OrganizationRecord), value);
  if (parsed.success) return [[slug, parsed.output]];
  log.warn("Ignored an unreadable record in the state database", { team: slug });
  return [];
}

/** Opens the database. Renames a damaged one and creates a new one. */
function openOrReplace(
  path: string,
  log: StateLog,
  now: () => number,
): { database: Database; aside?: string } {
  try {
    return { database: open(path) };
  } catch (error) {
    if (!isDamage(error)) throw storeError(error, path);
    const aside = `${path}.damaged-${new Date(now()).toISOString().replaceAll(/[-:]|\.\d+/g, "")}`;
    log.error("The state database is damaged: renamed it and created a new one", { aside });
    renameSync(path, aside);
    for (const suffix of ["-wal", "-shm"]) rmSync(path + suffix, { force: true });
    return { database: open(path), aside };
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
