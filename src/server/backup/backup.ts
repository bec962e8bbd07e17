// `agent admin backup`: writes one SQLite file with everything but the secret key, from either database, while the server
// runs. The file is verified before it gets its name. restore.ts restores it.

import { defer } from "../../base/defer.ts";
import { given } from "../../base/given.ts";
import { closeSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fromSystemError } from "../../base/errors.ts";
import { createFileFor, requireFreePlace, syncDirectory } from "../../base/files.ts";
import { sqliteFiles } from "../../base/open-file.ts";
import type { SecretKeys } from "../../pki/secrets.ts";
import type { System } from "../../base/system.ts";
import { faultsIn, verifyChains } from "../audit/verify.ts";
import { authenticate } from "./authentication.ts";
import { databasePath, type DataOptions } from "../store/data-directory.ts";
import { checkSecrets } from "./key-rotation.ts";
import { rememberBackup } from "../store/meta.ts";
import { copyTables, raiseCounters, readCounters } from "../store/copy.ts";
import { isStorageUnavailable, type Database } from "../store/database.ts";
import { newestVersion, tooNew } from "../store/migrations.ts";
import { queryNumber } from "../store/table.ts";
import { onSnapshot } from "../store/postgres/postgres.ts";
import { openSqlite } from "../store/sqlite/sqlite.ts";
import { requireOurSchema } from "../store/sqlite/schema.ts";
import { checkDatabase, copyDatabase } from "../store/sqlite/files.ts";

type Source = {
  db: Database;
  place: DataOptions;
  system: Pick<System, "now">;
  secretKey: SecretKeys;
};
/** `unrecorded`: why the database has no record of this backup. */
export type Backup = { file: string; bytes: number; unrecorded?: string } & Verified;
/** `audit_faults`: a sentence for each break of the audit log. They are no reason to lose everything else. */
export type Verified = { organizations: number; nodes: number; audit_faults: string[] };

/** Throws conflict if the file exists. */
export async function makeBackup(source: Source, file: string): Promise<Backup> {
  const { db, place, system, secretKey } = source;
  const path = resolve(file);
  requireFreePlace(file);
  const part = `${path}.part`;
  removeDatabase(part);
  try {
    const at = system.now();
    if (place.databaseUrl === undefined) copyDatabase(databasePath(place), part);
    else await dump(place.databaseUrl, db, part, system);
    const counted = await verifyBackup(part, { secretKey, isAuthentic: true }, system);
    authenticate(part, secretKey);
    renameSync(part, path);
    syncDirectory(dirname(path));
    const unrecorded = await db.write((tx) => rememberBackup(tx, at)).then(() => undefined, whyUnrecorded);
    return {
      file: path,
      bytes: statSync(path).size,
      ...counted,
      ...given({ unrecorded }),
    };
  } catch (error) {
    removeDatabase(part);
    throw fromSystemError(`write ${file}`, error);
  }
}

/** A failure here must not stop the backup: a disk that takes no changes is the best reason for one. */
function whyUnrecorded(error: unknown): string {
  if (isStorageUnavailable(error)) return error.message;
  throw error;
}

/** Copies PostgreSQL into a file as SQLite would have it. */
async function dump(url: string, db: Database, path: string, system: Pick<System, "now">): Promise<void> {
  closeSync(createFileFor(path, 0o600));
  const target = await openSqlite({ path, now: system.now, role: "visitor" });
  await using _ = defer(() => target.close());
  await onSnapshot(url, (reader) =>
    target.write(async (tx) => {
      await copyTables(reader, tx);
      await raiseCounters(tx, await readCounters(reader, db.dialect));
    }),
  );
}

/**
 * Verifies the schema and every page of a copy, and that the secret key opens every secret; looks at the audit chains. Throws
 * failed, or bad_configuration for another key, another schema or a database of a newer program. May migrate the file.
 * `isAuthentic`: a control plane with our key made it. Only then may it be of the next release, with a schema unknown here.
 */
export async function verifyBackup(
  path: string,
  { secretKey, isAuthentic }: { secretKey: SecretKeys; isAuthentic: boolean },
  system: Pick<System, "now">,
): Promise<Verified> {
  const version = requireOurSchema(path);
  if (version > newestVersion && !isAuthentic) throw tooNew(version);
  checkDatabase(path);
  const db = await openSqlite({ path, now: system.now, role: "visitor", isCopy: true });
  try {
    const audit_faults = faultsIn(await verifyChains(db, secretKey));
    await checkSecrets(db, secretKey);
    const organizations = "SELECT count(*) AS n FROM organizations WHERE deleted_at IS NULL";
    const nodes = "SELECT count(*) AS n FROM nodes WHERE state <> 'revoked'";
    return {
      organizations: await queryNumber(db, organizations),
      nodes: await queryNumber(db, nodes),
      audit_faults,
    };
  } finally {
    await db.close();
    // Again: the file may have been migrated.
    checkDatabase(path);
  }
}

/** Removes a database, and the files that SQLite keeps beside it. */
export function removeDatabase(path: string): void {
  for (const each of sqliteFiles(path)) rmSync(each, { force: true });
}
