// `agent admin restore`: puts a backup where the database was, or where there was none, of either kind. The backup is
// worked on as a copy; until the last step everything is as it was.

import { accessSync, constants, copyFileSync, existsSync, linkSync, renameSync } from "node:fs";
import { join } from "node:path";
import { AppError, fromSystemError } from "../../errors.ts";
import { syncDirectory } from "../../files.ts";
import { lockFile } from "../../platform/file-lock.ts";
import { makeBackup, removeDatabase, verifyBackup } from "./backup.ts";
import { carryOver, type Carried } from "./carry-over.ts";
import { databasePath, prepareDirectory, type DataOptions } from "../store/data-directory.ts";
import { operator, record } from "../audit/record.ts";
import { openSecretKeys } from "../store/secret-keys.ts";
import { copyTables, emptyTables, isEmpty, raiseCounters, readCounters } from "../store/copy.ts";
import { numberOf, numberOrNull, type Database, type Reader } from "../store/database.ts";
import { connectedServers, openPostgres } from "../store/postgres.ts";
import { openSqlite } from "../store/sqlite.ts";
import { checkDatabase, isAlone } from "../store/sqlite-files.ts";
import type { System } from "../../system.ts";

type Edge = Pick<System, "now" | "random" | "env">;
export type Restored = { organizations: number; nodes: number; set_aside?: string } & Partial<Carried>;

/** More versions and ids than anybody made since the backup: none must seem newer than it is, or be given twice. */
const madeASecond = 10;
const leastJump = 10_000;

/** Throws conflict where there is a database and `replace` is not given, busy where a server runs on it. */
export async function restoreBackup(
  options: DataOptions,
  file: string,
  replace: boolean,
  system: Edge,
): Promise<Restored> {
  try {
    accessSync(file, constants.R_OK);
  } catch (error) {
    throw fromSystemError(`restore ${file}`, error);
  }
  prepareDirectory(options.dataDirectory);
  const path = join(options.dataDirectory, "serve.lock");
  const lock = options.databaseUrl === undefined ? lockFile(path) : { release: () => undefined };
  if (lock === undefined) throw serverRuns();
  const copy = `${databasePath(options)}.restoring`;
  try {
    const secretKey = openSecretKeys(options, true, system);
    removeDatabase(copy);
    copyFileSync(file, copy);
    const counted = await verifyBackup(copy, secretKey, system);
    const fresh = await openSqlite({ path: copy, now: system.now, role: "visitor", isCopy: true });
    const put = options.databaseUrl === undefined ? intoFile : intoPostgres;
    return { ...counted, ...(await put({ options, replace, system, secretKey, copy, fresh })) };
  } catch (error) {
    throw fromSystemError(`restore ${file}`, error);
  } finally {
    removeDatabase(copy);
    lock.release();
  }
}

type Work = {
  options: DataOptions;
  replace: boolean;
  system: Edge;
  secretKey: Parameters<typeof verifyBackup>[1];
  copy: string;
  /** Opened on `copy`. */
  fresh: Database;
};

async function intoFile({ options, replace, system, copy, fresh }: Work): Promise<Partial<Restored>> {
  const path = databasePath(options);
  const isThere = existsSync(path);
  if (isThere && !replace) {
    await fresh.close();
    throw databaseIsThere(path);
  }
  const left = [`${path}-wal`, `${path}-journal`].find((each) => existsSync(each));
  if (!isThere && left !== undefined) {
    await fresh.close();
    throw new AppError("conflict", `${left} lies there without its database`, {
      hint: "It would be taken for the log of the restored one. Move it away; nothing was changed.",
    });
  }
  const old = isThere ? await openSqlite({ path, now: system.now, role: "visitor" }) : undefined;
  const carried = await prepare(fresh, old, system.now());
  // Closing leaves one file each, without a write-ahead log beside it.
  await old?.close();
  await fresh.close();
  checkDatabase(copy);
  if (isThere && !isAlone(path)) {
    throw new AppError("busy", `Another process uses ${path}`, {
      hint: "Wait until it has ended, a backup for example, and restore again; nothing was changed.",
    });
  }
  if (!isThere) {
    renameSync(copy, path);
    syncDirectory(options.dataDirectory);
    return {};
  }
  const aside = `${path}.replaced-${stampOf(system)}`;
  linkSync(path, aside);
  renameSync(copy, path);
  syncDirectory(options.dataDirectory);
  return { ...carried, set_aside: aside };
}

async function intoPostgres(work: Work): Promise<Partial<Restored>> {
  const { options, replace, system, secretKey, fresh } = work;
  const target = await openPostgres({ url: options.databaseUrl ?? "", now: system.now, role: "visitor" });
  try {
    const isThere = !(await isEmpty(target));
    if (isThere && !replace) throw databaseIsThere("the database");
    if ((await connectedServers(target)) > 0) throw serverRuns();
    const aside = join(options.dataDirectory, `control.db.replaced-${stampOf(system)}`);
    if (isThere) await makeBackup({ db: target, place: options, system, secretKey }, aside);
    const carried = await prepare(fresh, isThere ? target : undefined, system.now());
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

/** Makes the copy what the server goes on with. */
function prepare(fresh: Database, old: Database | undefined, now: number): Promise<Carried | undefined> {
  return fresh.write(async (tx) => {
    const last = numberOrNull((await tx.get("SELECT max(at) AS at FROM events")) ?? {}, "at") ?? now;
    const jump = Math.max(leastJump, Math.ceil(((now - last) / 1000) * madeASecond));
    for (const row of await tx.all("SELECT id, last_version FROM organizations")) {
      const jumped = numberOf(row, "last_version") + jump;
      const version = Math.max(jumped, (await lastVersion(old, numberOf(row, "id"))) + 1);
      await tx.run("UPDATE organizations SET last_version = $2, config_version = $2 WHERE id = $1", [
        numberOf(row, "id"),
        version,
      ]);
    }
    // Also where a database is replaced: it may be a new one, made after the one of the backup was lost.
    const counters = await readCounters(tx, tx.dialect);
    await raiseCounters(tx, new Map([...counters].map(([table, given]) => [table, given + jump])));
    // A session that was ended since must not come back: everybody signs in again.
    await tx.run("DELETE FROM refresh_tokens");
    await tx.run("UPDATE users SET sessions_from = $1", [now]);
    const carried = old === undefined ? undefined : await carryOver(old, tx, now);
    if (old !== undefined) await raiseCounters(tx, await readCounters(old, old.dialect));
    const after = { revoked_nodes: carried?.revoked_nodes ?? 0 };
    await record(tx, {
      orgId: null,
      at: now,
      type: "server.restored",
      actor: operator,
      subject: "server",
      after,
    });
    return carried;
  });
}

async function lastVersion(old: Reader | undefined, orgId: number): Promise<number> {
  const row = await old?.get("SELECT last_version FROM organizations WHERE id = $1", [orgId]);
  return row === undefined ? 0 : numberOf(row, "last_version");
}

function stampOf({ now }: Edge): string {
  return new Date(now()).toISOString().replaceAll(":", "-");
}

function serverRuns(): AppError {
  return new AppError("busy", "A server runs on this database", {
    hint: "Stop it first; nothing was changed.",
  });
}

function databaseIsThere(what: string): AppError {
  return new AppError("conflict", `There is a database already: ${what}`, {
    hint: "With --replace it is set aside, and what was revoked in it stays revoked.",
  });
}
