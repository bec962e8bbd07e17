// Values that a server records about itself in the table `meta`, for admin commands, metrics and the next start.

import type { Database, Reader, Transaction } from "./database.ts";
import { meta } from "./tables/servers.ts";

export async function readMeta(reader: Reader, key: string): Promise<string | undefined> {
  return (await meta.find(reader, { key }))?.value;
}

export function setMeta(tx: Transaction, key: string, value: string): Promise<number> {
  return meta.upsert(tx, { key, value }, "ON CONFLICT (key) DO UPDATE SET value = excluded.value");
}

/** `isForeignCa`: not the server's own CA, but that of `--tls-ca`. */
export type Known = { publicUrl: string; caFingerprint?: string; isForeignCa?: boolean };

const publicUrlKey = "public_url";
const fingerprintKey = "ca_fingerprint";
const foreignKey = "foreign_ca_fingerprint";

/** Where the last `serve` answered; the default address if none ever ran. */
export async function publicUrlOf(db: Reader): Promise<Known> {
  const own = await readMeta(db, fingerprintKey);
  const foreign = own === undefined ? await readMeta(db, foreignKey) : undefined;
  return {
    publicUrl: (await readMeta(db, publicUrlKey)) ?? "http://127.0.0.1:8420",
    ...(own === undefined ? {} : { caFingerprint: own }),
    ...(foreign === undefined ? {} : { caFingerprint: foreign, isForeignCa: true }),
  };
}

export async function rememberPublicUrl(db: Database, known: Known): Promise<void> {
  if (Bun.deepEquals(await publicUrlOf(db), known)) return;
  const { publicUrl, caFingerprint, isForeignCa } = known;
  await db.write(async (tx) => {
    await setMeta(tx, publicUrlKey, publicUrl);
    for (const key of [fingerprintKey, foreignKey]) await meta.delete(tx, { key });
    if (caFingerprint !== undefined)
      await setMeta(tx, isForeignCa === true ? foreignKey : fingerprintKey, caFingerprint);
  });
}

const backupKey = "last_backup_at";

/** When the last backup was made, ms; undefined before the first. */
export async function lastBackupAt(db: Reader): Promise<number | undefined> {
  const value = await readMeta(db, backupKey);
  return value === undefined ? undefined : Number(value);
}

export function rememberBackup(tx: Transaction, atMs: number): Promise<number> {
  return setMeta(tx, backupKey, String(atMs));
}
