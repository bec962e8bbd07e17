// What the daemon knows across its own restarts: SQLite used as a key-value store. It holds nothing that cannot be
// found again in the config root, so a damaged file is set aside and begun anew.

import { Database } from "bun:sqlite";
import { chmodSync, renameSync, rmSync } from "node:fs";
import * as v from "valibot";
import { AppError, fromSystemError, systemErrorCode } from "../errors.ts";
import type { Log } from "../log.ts";

const text = v.pipe(v.string(), v.maxLength(255));

/** What is kept of a team. */
export const TeamRecord = v.object({
  wanted: v.picklist(["up", "down"]),
  /** Not taken up again until somebody asks for it by name or by `provision`. */
  forgotten: v.optional(v.boolean(), false),
  /** The engine's process, to be found again by the next daemon. */
  process: v.optional(v.object({ pid: v.number(), started: text, startedAt: v.number() })),
  lastCheckinAt: v.optional(text),
  /** Keys of the configuration that this process has not read; its successor will. */
  restartPending: v.optional(v.pipe(v.array(text), v.maxLength(1000))),
});
export type TeamRecord = v.InferOutput<typeof TeamRecord>;

export type StateStore = {
  teams(): Map<string, TeamRecord>;
  /** Durable when it returns; AppError("disk_full") where there is no room, and then nothing is changed. */
  putTeam(team: string, record: TeamRecord): void;
  active(): string | undefined;
  setActive(team: string | undefined): void;
  close(): void;
};

const teamPrefix = "team/";
const activeKey = "active";

export function openState(path: string, log: Log, now: () => number): StateStore {
  const database = openSound(path, log, now);
  const put = database.query(
    "INSERT INTO entry (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2",
  );
  const remove = database.query("DELETE FROM entry WHERE key = ?1");
  const read = database.query<{ key: string; value: string }, [string]>(
    "SELECT key, value FROM entry WHERE key GLOB ?1",
  );
  let active = read.get(activeKey)?.value;
  const write = (action: () => unknown) => {
    try {
      action();
    } catch (error) {
      throw storeError(error, path);
    }
  };
  return {
    teams: () => new Map(read.all(`${teamPrefix}*`).flatMap(({ key, value }) => readTeam(key, value, log))),
    putTeam: (team, record) => write(() => put.run(teamPrefix + team, JSON.stringify(record))),
    active: () => active,
    setActive(team) {
      write(() => (team === undefined ? remove.run(activeKey) : put.run(activeKey, team)));
      active = team;
    },
    close: () => database.close(),
  };
}

function readTeam(key: string, value: string, log: Log): [string, TeamRecord][] {
  const team = key.slice(teamPrefix.length);
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), TeamRecord), value);
  if (parsed.success) return [[team, parsed.output]];
  log.warn("A team's record in the state database is unreadable and left out", { team });
  return [];
}

/** Opens the database; one that is damaged is renamed and a new one begun. */
function openSound(path: string, log: Log, now: () => number): Database {
  try {
    return open(path);
  } catch (error) {
    if (!isDamage(error)) throw storeError(error, path);
    const aside = `${path}.damaged-${new Date(now()).toISOString().replaceAll(/[-:]|\.\d+/g, "")}`;
    log.error("The state database is damaged; it is set aside and begun anew from the config root", {
      aside,
    });
    renameSync(path, aside);
    for (const suffix of ["-wal", "-shm"]) rmSync(path + suffix, { force: true });
    return open(path);
  }
}

function open(path: string): Database {
  const database = new Database(path, { create: true, strict: true });
  try {
    chmodSync(path, 0o600);
    database.run("PRAGMA busy_timeout = 5000");
    // Nobody else reads it. Without the file that readers would share it can be opened on a full disk too.
    database.run("PRAGMA locking_mode = EXCLUSIVE");
    database.run("PRAGMA journal_mode = WAL");
    database.run("PRAGMA synchronous = FULL");
    // One small table: a larger page cache than this would only cost memory.
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
      hint: "Free some space and ask again; nothing was changed.",
    });
  }
  return fromSystemError(`use the state database ${path}`, error);
}
