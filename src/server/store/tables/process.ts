// What servers and admin commands share through the database.

import { openSecret, sealSecret, type SecretKeys } from "../../../pki/secrets.ts";
import type { Database, Reader } from "../database.ts";
import { integer, serial, table, text } from "../table.ts";

export const meta = table("meta", { key: text("PRIMARY KEY"), value: text() });

/** Wake-ups for other processes (SQLite alone; PostgreSQL has NOTIFY). */
export const notices = table("notices", {
  id: serial,
  channel: text(),
  payload: text(),
  createdAt: integer(),
});

/**
 * A secret that all replicas share, sealed in `meta`. The first replica that asks creates it. Throws bad_configuration
 * where the secret key does not open it.
 */
export async function sharedSecret(
  { db, secretKey }: { db: Database; secretKey: SecretKeys },
  key: string,
  create: () => Promise<string>,
): Promise<string> {
  const find = async (reader: Pick<Reader, "get">) => {
    const stored = await meta.find(reader, { key });
    return stored === undefined ? undefined : openSecret(secretKey, stored.value, key);
  };
  const known = await find(db);
  if (known !== undefined) return known;
  const fresh = await create();
  return db.write(async (tx) => {
    await meta.upsert(tx, { key, value: sealSecret(secretKey, fresh, key) }, "ON CONFLICT (key) DO NOTHING");
    return (await find(tx)) ?? fresh;
  });
}
