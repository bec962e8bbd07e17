// `agent admin restore`: replaces or creates the database, of either kind, from a backup. It works on a copy of the
// backup; nothing changes before the last step.

import { accessSync, constants, existsSync, lchownSync, linkSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import { formatTime } from "../../base/quantities.ts";
import { defer } from "../../base/defer.ts";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { sqliteFiles } from "../../base/open-file.ts";
import type { SecretKeys } from "../../pki/secrets.ts";
import { syncDirectory, type FileOwner } from "../../base/files.ts";
import type { Step } from "../../base/plan/plan.ts";
import { planReplaced } from "../../base/plan/plan-file.ts";
import { lockFile } from "../../platform/file-lock.ts";
import { authenticate, copyBackup, type Origin } from "./authentication.ts";
import { makeBackup, removeDatabase, verifyBackup, type Verified } from "./backup.ts";
import { damageOf } from "./damage.ts";
import type { Carried } from "./carried.ts";
import { prepareRestored } from "./prepare-restored.ts";
import { databasePath, planPrivate, prepareDirectory, type DataOptions } from "../store/data-directory.ts";
import { findSecretKeys, openSecretKeys } from "../store/secret-keys.ts";
import { copyTables, emptyTables, isEmpty, raiseCounters, readCounters } from "../store/copy.ts";
import type { Database } from "../store/database.ts";
import { connectedServers } from "../store/postgres/connected-servers.ts";
import { openPostgres } from "../store/postgres/postgres.ts";
import { damageIn } from "../store/sqlite/errors.ts";
import { openSqlite } from "../store/sqlite/sqlite.ts";
import { checkDatabase, isAlone } from "../store/sqlite/files.ts";
import { queryNumber } from "../store/table.ts";
import { users } from "../store/tables/users.ts";
import type { System } from "../../base/system.ts";

type Edge = Pick<System, "now" | "random" | "env">;
export type Restored = Verified & {
  /** The time of the last event or check-in in the backup, RFC 3339. Null: it has none. */
  as_of: string | null;
  set_aside?: string;
  /** The damage, or emptiness, because of which nothing was carried over from the replaced database. */
  unreadable?: string;
  /** For an unauthenticated backup: the users who can do everything. */
  staff?: string[];
} & Partial<Carried>;

/**
 * `unauthenticated` permits a backup that this control plane may not have made. Throws backup_unauthenticated without it,
 * conflict if there is a database and `replace` is false, busy if a server runs on it.
 */
export async function restoreBackup(
  options: DataOptions,
  file: string,
  { replace, unauthenticated }: { replace: boolean; unauthenticated: boolean },
  system: Edge,
): Promise<Restored> {
  requireReadable(file);
  prepareDirectory(options.dataDirectory);
  const unlock = lockData(options);
  const copy = `${databasePath(options)}.restoring`;
  try {
    // `isUsed`: a missing key must not be created, because no backup would fit it.
    const secretKey = openSecretKeys({ ...options, isUsed: true }, system);
    // A killed run may have left it.
    removeDatabase(copy);
    const origin = copyBackup(file, copy, secretKey, placeOf(options));
    const damage = origin.isAuthentic ? undefined : damageOf(copy);
    if (damage !== undefined) throw damaged(file, damage, unauthenticated);
    if (!origin.isAuthentic && !unauthenticated) throw notAuthentic(file, origin);
    const counted = await verifyBackup(copy, { secretKey, ...origin }, system);
    // "visitor": it does not listen for changes of other processes, as a server does. `isCopy`: the migration makes no other copy.
    const fresh = await openSqlite({ path: copy, now: system.now, role: "visitor", isCopy: true });
    const as_of = await lastKnownAt(fresh, system.now());
    const staff = origin.isAuthentic ? {} : { staff: await staffOf(fresh) };
    const install = options.databaseUrl === undefined ? installFile : installInPostgres;
    return {
      ...counted,
      as_of,
      ...staff,
      ...(await install({ options, replace, system, secretKey, copy, fresh })),
    };
  } catch (error) {
    throw fromSystemError(`restore ${file}`, error);
  } finally {
    removeDatabase(copy);
    unlock();
  }
}

/** Keeps a server from starting on the file meanwhile. Returns the function that releases the lock. Throws busy. */
function lockData({ dataDirectory, databaseUrl }: DataOptions): () => void {
  if (databaseUrl !== undefined) return () => undefined;
  const path = join(dataDirectory, "serve.lock");
  const lock = lockFile(path);
  if (lock === undefined) throw serverIsRunning();
  // If this process is killed, the file stays, and the server can still open it.
  if (existsSync(path) && process.getuid?.() === 0) {
    const { uid, gid } = statSync(dataDirectory);
    lchownSync(path, uid, gid);
  }
  return lock.release;
}

/** Keeps owner and mode of the present database, without access for others. A new one belongs to the directory's owner. */
function placeOf(options: DataOptions): { mode: number; owner: FileOwner } {
  const present = statSync(databasePath(options), { throwIfNoEntry: false });
  if (present === undefined) return { mode: 0o600, owner: statSync(options.dataDirectory) };
  return { mode: 0o600 | (present.mode & 0o060), owner: present };
}

function notAuthentic(file: string, { isSigned, missingKey }: Origin): AppError {
  if (missingKey !== undefined) {
    return new AppError("bad_configuration", `${file} needs the secret key ${missingKey}, which is missing`, {
      hint: "Give the key file of this backup. After `admin key rotate`, append the former key to the present key file.",
    });
  }
  if (isSigned) {
    return new AppError(
      "backup_unauthenticated",
      `Cannot restore ${file}: it was changed after it was made`,
      {
        hint: `${takeAnother} Only if you know who changed it, and why: --unauthenticated.`,
      },
    );
  }
  const why = "it does not say which control plane made it";
  return new AppError("backup_unauthenticated", `Cannot restore ${file}: ${why}`, {
    hint:
      "Backups of 0.1.0 and plain copies of a database need --unauthenticated. Use it only if you know where the file " +
      "comes from: its users and tokens get every right that the file gives them.",
  });
}

const takeAnother = "Copy the backup again from where it was made, or take an older one.";

/** The code backup_unauthenticated asks for `--unauthenticated`, so it must not come once that was given: it does not help here. */
function damaged(file: string, damage: string, unauthenticated: boolean): AppError {
  const code = unauthenticated ? "failed" : "backup_unauthenticated";
  return new AppError(code, `Cannot restore ${file}: ${damage}`, { hint: takeAnother });
}

/**
 * The time of the last event or check-in, RFC 3339; null: there is none. A later time than `now` is that of a clock that was wrong.
 * Call it before `prepareRestored` writes its own event.
 */
async function lastKnownAt(reader: Database, now: number): Promise<string | null> {
  const at = await queryNumber(
    reader,
    `SELECT max(at) AS n FROM (SELECT coalesce(max(at), 0) AS at FROM events WHERE at <= $1
       UNION ALL SELECT coalesce(max(last_checkin_at), 0) AS at FROM sightings WHERE last_checkin_at <= $1) known`,
    [now],
  );
  return at === 0 ? null : formatTime(at);
}

async function staffOf(reader: Database): Promise<string[]> {
  return (await users.all(reader, { isStaff: true, isActive: true })).map(({ email }) => email);
}

/** The plan of restoreBackup. Reads neither the backup nor PostgreSQL. */
export function planRestore(options: DataOptions, file: string, replace: boolean, system: Edge): Step[] {
  requireReadable(file);
  // Throws if the key is missing.
  findSecretKeys({ ...options, isUsed: true }, system);
  const directory = planPrivate(options.dataDirectory);
  if (options.databaseUrl !== undefined) return directory;
  const path = databasePath(options);
  const isThere = existsSync(path);
  if (isThere && !replace) throw databaseExists(path);
  const mode = isThere ? placeOf(options).mode : 0o600;
  const aside = isThere ? [planReplaced(asidePath(path, system), mode)] : [];
  return [...directory, ...aside, planReplaced(path, mode)];
}

function requireReadable(file: string): void {
  try {
    accessSync(file, constants.R_OK);
  } catch (error) {
    throw fromSystemError(`restore ${file}`, error);
  }
}

type Work = {
  options: DataOptions;
  replace: boolean;
  system: Edge;
  secretKey: SecretKeys;
  copy: string;
  /** Opened on `copy`. */
  fresh: Database;
};

async function installFile(work: Work): Promise<Partial<Restored>> {
  const { options, replace, system, secretKey, copy, fresh } = work;
  const path = databasePath(options);
  const isThere = existsSync(path);
  if (isThere && !replace) {
    await fresh.close();
    throw databaseExists(path);
  }
  const leftover = [`${path}-wal`, `${path}-journal`].find((each) => existsSync(each));
  if (!isThere && leftover !== undefined) {
    await fresh.close();
    throw new AppError("conflict", `${leftover} exists without its database`, {
      hint: "SQLite would apply it to the restored database. Move it away and restore again; nothing was changed.",
    });
  }
  const carried: Partial<Restored> | undefined = isThere
    ? await prepareFromFile(path, fresh, system.now)
    : await prepareRestored(fresh, undefined, system.now());
  // After closing, each database is one file, without a write-ahead log.
  await fresh.close();
  checkDatabase(copy);
  const isReadable = carried?.unreadable === undefined;
  if (isThere && isReadable && !isAlone(path)) {
    throw new AppError("busy", `Another process uses ${path}`, {
      hint: "Wait until that process (for example a backup) has ended, and restore again; nothing was changed.",
    });
  }
  if (!isThere) {
    renameSync(copy, path);
    syncDirectory(options.dataDirectory);
    // Without an old database nothing is carried over.
    return {};
  }
  const aside = asidePath(path, system);
  linkSync(path, aside);
  // Authenticated, so that it can be restored like a backup.
  if (isReadable) authenticate(aside, secretKey);
  else moveJournals(path, aside);
  renameSync(copy, path);
  syncDirectory(options.dataDirectory);
  return { ...carried, set_aside: aside };
}

/**
 * Prepares `fresh`, with what has ended in the database at `path`. A damaged one is no reason to fail, since a restore is the remedy for
 * it: then nothing of it is carried over.
 */
async function prepareFromFile(path: string, fresh: Database, now: () => number): Promise<Partial<Restored>> {
  try {
    const old = await openSqlite({ path, now, role: "visitor" });
    await using _ = defer(() => old.close());
    const carried = (await prepareRestored(fresh, old, now())) ?? {};
    return (await isEmpty(old)) ? { unreadable: "it is empty" } : carried;
  } catch (error) {
    const unreadable = damageIn(error);
    if (unreadable === undefined) throw error;
    await prepareRestored(fresh, undefined, now());
    return { unreadable };
  }
}

/** The journals of a damaged database stay beside it: SQLite would apply them to the database that takes its place. */
function moveJournals(path: string, aside: string): void {
  const [, ...journals] = sqliteFiles(path);
  const [, ...asides] = sqliteFiles(aside);
  for (const [at, journal] of journals.entries())
    if (existsSync(journal)) renameSync(journal, asides[at] ?? "");
}

async function installInPostgres(work: Work): Promise<Partial<Restored>> {
  const { options, replace, system, secretKey, fresh } = work;
  const target = await openPostgres({ url: options.databaseUrl ?? "", now: system.now, role: "visitor" });
  try {
    const isThere = !(await isEmpty(target));
    if (isThere && !replace) throw databaseExists("the database");
    if ((await connectedServers(target)) > 0) throw serverIsRunning();
    const aside = asidePath(databasePath(options), system);
    if (isThere) await makeBackup({ db: target, place: options, system, secretKey }, aside);
    const carried = await prepareRestored(fresh, isThere ? target : undefined, system.now());
    await target.write(async (tx) => {
      await emptyTables(tx);
      await copyTables(fresh, tx);
      await raiseCounters(tx, await readCounters(fresh, "sqlite"));
    });
    return isThere ? { ...carried, set_aside: aside } : {};
  } finally {
    await fresh.close();
    await target.close();
  }
}

/** Where the old database stays. */
function asidePath(path: string, { now }: Edge): string {
  return `${path}.replaced-${new Date(now()).toISOString().replaceAll(":", "-")}`;
}

function serverIsRunning(): AppError {
  return new AppError("busy", "A server is running on this database", {
    hint: `Nothing was changed. Stop the server (\`systemctl stop ${brand.id}-control\`, or end \`${brand.executable} serve\`), restore again, and start it.`,
  });
}

function databaseExists(what: string): AppError {
  return new AppError("conflict", `There is already a database: ${what}`, {
    hint: "With `--replace` the old database stays as a file. Everything revoked or deleted since the backup stays revoked or deleted.",
  });
}
