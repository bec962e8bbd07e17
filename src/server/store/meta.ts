// What a server has said of itself, kept in the database for the admin commands.

import { textOf, type Database, type Transaction } from "./database.ts";

export type Known = { publicUrl: string; caFingerprint?: string };

/** As the last `serve` was started; the default of a server that never ran. */
export async function publicUrlOf(db: Pick<Database, "all">): Promise<Known> {
  const rows = await db.all("SELECT key, value FROM meta WHERE key IN ('public_url', 'ca_fingerprint')");
  const value = (key: string) =>
    rows.filter((row) => row["key"] === key).map((row) => textOf(row, "value"))[0];
  const caFingerprint = value("ca_fingerprint");
  return {
    publicUrl: value("public_url") ?? "http://127.0.0.1:8420",
    ...(caFingerprint === undefined ? {} : { caFingerprint }),
  };
}

export async function rememberPublicUrl(db: Database, known: Known): Promise<void> {
  const before = await publicUrlOf(db);
  if (before.publicUrl === known.publicUrl && before.caFingerprint === known.caFingerprint) return;
  await db.write(async (tx) => {
    await tx.run("DELETE FROM meta WHERE key IN ('public_url', 'ca_fingerprint')");
    await tx.run("INSERT INTO meta (key, value) VALUES ('public_url', $1)", [known.publicUrl]);
    if (known.caFingerprint === undefined) return;
    await tx.run("INSERT INTO meta (key, value) VALUES ('ca_fingerprint', $1)", [known.caFingerprint]);
  });
}

const backupKey = "last_backup_at";

/** When the last backup was made, ms; undefined before the first. */
export async function lastBackupAt(db: Pick<Database, "get">): Promise<number | undefined> {
  const row = await db.get("SELECT value FROM meta WHERE key = $1", [backupKey]);
  return row === undefined ? undefined : Number(textOf(row, "value"));
}

export async function rememberBackup(tx: Transaction, at: number): Promise<void> {
  await tx.run(
    "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    [backupKey, String(at)],
  );
}
