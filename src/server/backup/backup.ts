// `agent admin backup`: one SQLite file with everything but the secret key, whatever the database is, made while the
// server runs and read back before it counts. Restoring is restore.ts.

import { closeSync, existsSync, openSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { AppError, fromSystemError } from "../../errors.ts";
import { syncDirectory } from "../../files.ts";
import type { SecretKeys } from "../../pki/secrets.ts";
import type { System } from "../../system.ts";
import { verifyChains } from "../audit/read.ts";
import { databasePath, type DataOptions } from "../store/data-directory.ts";
import { checkSecrets } from "./key-rotation.ts";
import { rememberBackup } from "../store/meta.ts";
import { copyTables, raiseCounters, readCounters } from "../store/copy.ts";
import { numberOf, type Database, type Reader } from "../store/database.ts";
import { onSnapshot } from "../store/postgres.ts";
import { openSqlite } from "../store/sqlite.ts";
import { checkDatabase, copyDatabase } from "../store/sqlite-files.ts";

type Source = {
  db: Database;
  place: DataOptions;
  system: Pick<System, "now">;
  secretKey: SecretKeys;
};
export type Backup = { file: string; bytes: number; organizations: number; nodes: number };

/** Throws conflict where the file is there already. */
export async function makeBackup(source: Source, file: string): Promise<Backup> {
  const { db, place, system, secretKey } = source;
  const path = resolve(file);
  if (existsSync(path)) {
    throw new AppError("conflict", `${file} is there already`, {
      hint: "Each backup gets a file of its own.",
    });
  }
  const beside = `${path}.part`;
  removeDatabase(beside);
  try {
    const at = system.now();
    if (place.databaseUrl === undefined) copyDatabase(databasePath(place), beside);
    else await dump(place.databaseUrl, db, beside, system);
    const counted = await verifyBackup(beside, secretKey, system);
    renameSync(beside, path);
    syncDirectory(dirname(path));
    await db.write((tx) => rememberBackup(tx, at));
    return { file: path, bytes: statSync(path).size, ...counted };
  } catch (error) {
    removeDatabase(beside);
    throw fromSystemError(`write ${file}`, error);
  }
}

/** What PostgreSQL holds, as the same file that SQLite would be. */
async function dump(url: string, db: Database, path: string, system: Pick<System, "now">): Promise<void> {
  closeSync(openSync(path, "wx", 0o600));
  const target = await openSqlite({ path, now: system.now, role: "visitor" });
  try {
    await onSnapshot(url, (reader) =>
      target.write(async (tx) => {
        await copyTables(reader, tx);
        await raiseCounters(tx, await readCounters(reader, db.dialect));
      }),
    );
  } finally {
    await target.close();
  }
}

/**
 * Reads a copy as a server would: every page, the audit chains, and the secrets, which our key must open. Throws failed, or
 * bad_configuration for another key and for a database of a newer program. The file may be migrated by this.
 */
export async function verifyBackup(
  path: string,
  secretKey: SecretKeys,
  system: Pick<System, "now">,
): Promise<Pick<Backup, "organizations" | "nodes">> {
  checkDatabase(path);
  const db = await openSqlite({ path, now: system.now, role: "visitor", isCopy: true });
  try {
    const broken = (await verifyChains(db)).find((each) => each.brokenAt !== null);
    if (broken !== undefined) {
      throw new AppError("failed", `The audit log in ${path} was changed at event ${broken.brokenAt}`);
    }
    await checkSecrets(db, secretKey);
    const organizations = await count(db, "SELECT count(*) AS n FROM organizations WHERE deleted_at IS NULL");
    return {
      organizations,
      nodes: await count(db, "SELECT count(*) AS n FROM nodes WHERE state <> 'revoked'"),
    };
  } finally {
    await db.close();
    checkDatabase(path);
  }
}

async function count(reader: Reader, sql: string): Promise<number> {
  return numberOf((await reader.get(sql)) ?? {}, "n");
}

/** With what SQLite keeps beside it. */
export function removeDatabase(path: string): void {
  for (const end of ["", "-wal", "-shm", "-journal"]) rmSync(path + end, { force: true });
}
