// What a server records about itself in the table `meta`, for admin commands, metrics and the next start.

import type { Database, Reader, Transaction } from "./database.ts";
import { meta } from "./tables/meta.ts";

export async function readMeta(reader: Pick<Reader, "get">, key: string): Promise<string | undefined> {
  return (await meta.find(reader, { key }))?.value;
}

export function setMeta(tx: Pick<Transaction, "run">, key: string, value: string): Promise<number> {
  return meta.upsert(tx, { key, value }, "ON CONFLICT (key) DO UPDATE SET value = excluded.value");
}

export type Known = { publicUrl: string; caFingerprint?: string };

const publicUrlKey = "public_url";
const fingerprintKey = "ca_fingerprint";

/** Where the last `serve` answered; the default address if none ever ran. */
export async function publicUrlOf(db: Pick<Database, "get">): Promise<Known> {
  const caFingerprint = await readMeta(db, fingerprintKey);
  return {
    publicUrl: (await readMeta(db, publicUrlKey)) ?? "http://127.0.0.1:8420",
    ...(caFingerprint === undefined ? {} : { caFingerprint }),
  };
}

export async function rememberPublicUrl(db: Database, known: Known): Promise<void> {
  const before = await publicUrlOf(db);
  if (before.publicUrl === known.publicUrl && before.caFingerprint === known.caFingerprint) return;
  await db.write(async (tx) => {
    await setMeta(tx, publicUrlKey, known.publicUrl);
    if (known.caFingerprint === undefined) await meta.delete(tx, { key: fingerprintKey });
    else await setMeta(tx, fingerprintKey, known.caFingerprint);
  });
}

const backupKey = "last_backup_at";

/** When the last backup was made, ms; undefined before the first. */
export async function lastBackupAt(db: Pick<Database, "get">): Promise<number | undefined> {
  const value = await readMeta(db, backupKey);
  return value === undefined ? undefined : Number(value);
}

export function rememberBackup(tx: Transaction, at: number): Promise<number> {
  return setMeta(tx, backupKey, String(at));
}
