// Opens the control plane's data: the directory (0700), the database, and the key that encrypts its secrets. `serve`
// and the admin commands share it.
//
// Each file that the control plane creates in the directory must match `ownNames` (own-data.ts): a directory that is open to
// others and holds another file is refused. The key is written before the database, and the mark of a begun database after both.

import { chmodSync, closeSync, existsSync, readdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { brand } from "../../brand.ts";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { createFileFor, isOpenToOthers, makeDirectory } from "../../base/files.ts";
import type { SecretKeys } from "../../pki/secrets.ts";
import type { Step } from "../../base/plan/plan.ts";
import { quoteWord } from "../../base/quote.ts";
import { planDirectories, planReplaced } from "../../base/plan/plan-file.ts";
import type { System } from "../../base/system.ts";
import { ownNames, refuseForeignData } from "./own-data.ts";
import { isBegun, lostDatabase, markBegun, markPath } from "./database-mark.ts";
import { openClock, type ServerClock } from "./clock.ts";
import { findSecretKeys, openSecretKeys } from "./secret-keys.ts";
import type { Database } from "./database.ts";

export type DataOptions = {
  dataDirectory: string;
  /** PostgreSQL instead of the file in the data directory. */
  databaseUrl?: string;
  secretKeyFile?: string;
};

export type Data = { db: Database; secretKey: SecretKeys; clock: ServerClock };

type Edge = Pick<System, "now" | "bootTime" | "monotonic" | "random" | "env">;

export function databasePath({ dataDirectory }: Pick<DataOptions, "dataDirectory">): string {
  return join(dataDirectory, "control.db");
}

/** Throws not_found for a directory without data: a mistyped path must not look like an empty control plane. */
export function requireData(options: DataOptions): void {
  if (hasData(options)) return;
  refuseLost(databasePath(options));
  throw new AppError("not_found", `There is no control plane data in ${options.dataDirectory}`, {
    hint: `Give the right directory with --data-dir. \`${brand.executable} serve\` creates a new one. For a control plane on another machine, sign in: \`${brand.executable} login --api-base URL\`.`,
  });
}

export function hasData({ dataDirectory, databaseUrl }: DataOptions): boolean {
  return databaseUrl !== undefined || isThere(databasePath({ dataDirectory }));
}

function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    throw fromSystemError(`read ${path}`, error);
  }
}

/**
 * Opens the data and creates what is missing. `visitor`: a command that works beside a running server, or without one. Throws
 * bad_configuration or storage_unavailable.
 */
export async function openData(
  options: DataOptions,
  role: "server" | "visitor",
  system: Edge,
): Promise<Data> {
  const { dataDirectory, databaseUrl } = options;
  prepareDirectory(dataDirectory);
  const path = databasePath(options);
  if (databaseUrl === undefined) refuseLost(path);
  const secretKey = openSecretKeys({ ...options, isUsed: existsSync(path) }, system);
  // For PostgreSQL, a key that is missing here is made even if the database has secrets: checkReplica then refuses it.
  if (databaseUrl !== undefined) {
    const { openPostgres } = await import("./postgres/postgres.ts");
    const db = await openPostgres({ url: databaseUrl, now: system.now, role });
    // All servers trust the clock of the database, so each compares its own with it.
    return { db, secretKey, clock: await openClock(db, system, { comparesDatabase: role === "server" }) };
  }
  const { openSqlite } = await import("./sqlite/sqlite.ts");
  createDatabaseFile(path);
  const db = await openSqlite({ path, now: system.now, role, isBegun: isBegun(dataDirectory) });
  markBegun(dataDirectory);
  return { db, secretKey, clock: await openClock(db, system) };
}

/** Throws bad_configuration where a database was and is no more. */
function refuseLost(path: string): void {
  if (!existsSync(path) && isBegun(dirname(path))) throw lostDatabase(path, "is missing");
}

/** Root may prepare the data of the user that the server runs as: the file belongs to the directory's owner. */
function createDatabaseFile(path: string): void {
  try {
    if (!existsSync(path)) closeSync(createFileFor(path, 0o600, statSync(dirname(path))));
  } catch (error) {
    // Another process was faster.
    if (systemErrorCode(error) !== "EEXIST") throw fromSystemError(`create ${path}`, error);
  }
}

/**
 * Plans openData for --dry-run: what it would create, and the database that a command then changes. Throws like
 * openData.
 */
export function planData(options: DataOptions, system: Pick<System, "env">): Step[] {
  const { dataDirectory, databaseUrl } = options;
  const path = databasePath(options);
  if (databaseUrl === undefined) refuseLost(path);
  const secretKeys = findSecretKeys({ ...options, isUsed: existsSync(path) }, system);
  return [
    ...planPrivate(dataDirectory),
    ...(secretKeys.isThere ? [] : [planReplaced(secretKeys.path, 0o600)]),
    ...(databaseUrl === undefined ? [planReplaced(path, 0o600)] : []),
    ...(databaseUrl !== undefined || isBegun(dataDirectory)
      ? []
      : [planReplaced(markPath(dataDirectory), 0o600)]),
  ];
}

/** The plan of prepareDirectory. */
export function planPrivate(path: string): Step[] {
  if (!existsSync(path)) return planDirectories([path]);
  refuseShared(path);
  refuseForeignData(path);
  return isOpenToOthers(path)
    ? [{ step: "file", path: join(path, "/"), mode: "0700", change: "changed" }]
    : [];
}

/** Makes the directory private (0700). Refuses a shared directory that holds foreign files. */
export function prepareDirectory(path: string): void {
  process.umask(0o077);
  makeDirectory(path, 0o700);
  try {
    refuseShared(path);
    if (isOpenToOthers(path)) chmodSync(path, 0o700);
    refuseForeignData(path);
  } catch (error) {
    throw fromSystemError(`prepare ${path}`, error);
  }
}

/** Throws bad_configuration for a directory that is open to others and holds files of others: it is not ours alone. */
function refuseShared(path: string): void {
  if (!isOpenToOthers(path)) return;
  const foreign = readdirSync(path).find((name) => !ownNames.test(name));
  if (foreign === undefined) return;
  throw new AppError(
    "bad_configuration",
    `The data directory ${path} is open to other users and holds ${foreign}`,
    {
      hint: `Give another directory with --data-dir, or make this one private: chmod 700 ${quoteWord(path)}`,
    },
  );
}
