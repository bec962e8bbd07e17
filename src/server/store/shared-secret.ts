// Secrets that all replicas share through the database.

import { openSecret, sealSecret, type SecretKeys } from "../../pki/secrets.ts";
import type { Database, Reader } from "./database.ts";
import { meta } from "./tables/servers.ts";

/**
 * A secret that all replicas share, sealed in `meta`. The first replica that asks creates it. Throws bad_configuration
 * where the secret key does not open it.
 */
export async function sharedSecret(
  { db, secretKey }: { db: Database; secretKey: SecretKeys },
  key: string,
  create: () => Promise<string>,
): Promise<string> {
  const find = async (reader: Reader) => {
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
