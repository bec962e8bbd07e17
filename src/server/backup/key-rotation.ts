// `agent admin key rotate`: seals every stored secret with a new key. A run that is killed leaves everything readable, and
// the next run continues: a key leaves its file only when no secret is sealed with it.

import { defer } from "../../base/defer.ts";
import { existsSync } from "node:fs";
import { AppError } from "../../base/errors.ts";
import { lockFile } from "../../platform/file-lock.ts";
import { openSecret, sealSecret, keyIdOfEnvelope, secretKeyId, type SecretKeys } from "../../pki/secrets.ts";
import type { System } from "../../base/system.ts";
import { totpContext } from "../users/factors/second-factor.ts";
import { authorityContext } from "../certificates/make-authorities.ts";
import { orderKeyContext } from "../organizations/organizations.ts";
import { readSecretKeys, writeSecretKeys } from "../store/secret-keys.ts";
import { databasePath, type DataOptions } from "../store/data-directory.ts";
import { removeTraces } from "../store/sqlite/files.ts";
import type { Database, Reader, Row, Transaction } from "../store/database.ts";
import { computed, text, type Picked } from "../store/table.ts";
import { authorities } from "../store/tables/certificates.ts";
import { identityProviders, grantContext, providerGrants } from "../store/tables/providers.ts";
import { totpSecrets } from "../store/tables/users.ts";
import { webhooks } from "../store/tables/webhooks.ts";
import { organizations } from "../store/tables/organizations.ts";
import { meta } from "../store/tables/servers.ts";
import { providerContext } from "../oidc/provider-requests.ts";
import { webhookContext } from "../webhooks/webhooks.ts";

/** `id`: the column that finds a row. `of`: the columns that `context` is made from. */
function sealedColumn<T>({
  table,
  column,
  id = "id",
  of,
  context,
}: {
  table: string;
  column: string;
  id?: string;
  of: Picked<T>;
  context(of: T): string;
}) {
  return { table, id, column, of: of.select(), context: (row: Row) => context(of.parse(row)) };
}

/** Every column with secrets, and the context that each secret is sealed for. */
export const sealedColumns = [
  sealedColumn({
    table: "authorities",
    column: "private_key_sealed",
    of: authorities.pick("kind", "fingerprint"),
    context: ({ kind, fingerprint }) => authorityContext(kind, fingerprint),
  }),
  sealedColumn({
    table: "identity_providers",
    column: "secret_sealed",
    of: identityProviders.pick("id"),
    context: ({ id }) => providerContext(id),
  }),
  sealedColumn({
    table: "organizations",
    column: "order_key_sealed",
    of: organizations.pick("orderPublic"),
    context: ({ orderPublic }) => orderKeyContext(orderPublic.kid),
  }),
  sealedColumn({
    table: "provider_grants",
    column: "token_sealed",
    of: providerGrants.pick("providerId", "subject"),
    context: ({ providerId, subject }) => grantContext(providerId, subject),
  }),
  sealedColumn({
    table: "totp_secrets",
    column: "secret_sealed",
    of: totpSecrets.pick("userId"),
    context: ({ userId }) => totpContext(userId),
  }),
  sealedColumn({
    table: "webhooks",
    column: "secret_sealed",
    of: webhooks.pick("id"),
    context: ({ id }) => webhookContext(id),
  }),
  sealedColumn({
    table: "meta",
    column: "value",
    id: "key",
    of: meta.pick("key"),
    context: ({ key }) => key,
  }),
];
const sealedText = computed({ sealed: text() });

/** A running server that has sealed a secret with the former key stores it within this time. */
const stragglersMs = 1500;

export type KeyRotation = {
  /** False: the file now has both keys, and the other replicas need it before the next run. */
  finished: boolean;
  key_id: string;
  resealed: number;
  /** The file with the former key, for backups made with it. */
  former_key_file?: string;
};

/**
 * `path`: of the file with the keys. With PostgreSQL, other servers may read copies of it, which need the new key first: then
 * two runs are needed. Throws busy while another run rotates the key.
 */
export async function rotateSecretKey(
  { db, system, place }: { db: Database; system: Pick<System, "random" | "sleep">; place: DataOptions },
  path: string,
): Promise<KeyRotation> {
  const lock = lockFile(`${path}.lock`);
  if (lock === undefined) throw new AppError("busy", "Another run is rotating the secret key");
  using _ = defer(() => lock.release());
  const present = readSecretKeys(path);
  // An interrupted run leaves two keys. This run continues it instead of creating a third key.
  const isFirstRun = present.length === 1;
  if (isFirstRun) {
    present.unshift(system.random(32));
    writeSecretKeys(path, present);
  }
  const [fresh, ...former] = present;
  if (fresh === undefined) throw new AppError("internal", `${path} holds no key`);
  const key_id = secretKeyId(fresh);
  if (isFirstRun && place.databaseUrl !== undefined) return { finished: false, key_id, resealed: 0 };
  const seal = () => db.write((tx) => sealAll(tx, present, key_id));
  let resealed = await seal();
  // Until a round finds no secret with a former key.
  let late: number;
  do {
    await system.sleep(stragglersMs);
    late = await seal();
    resealed += late;
  } while (late > 0);
  // Secrets under the former key must not stay in free pages of the file. Before the end of the rotation: if this fails, the next
  // run repeats it.
  if (place.databaseUrl === undefined) removeTraces(databasePath(place));
  const former_key_file = formerKeyPath(path);
  keepFormer(former_key_file, former);
  writeSecretKeys(path, [fresh]);
  return { finished: true, key_id, resealed, former_key_file };
}

/** Every stored secret with the update of its row. Sealed texts begin with `s1.` (pki/secrets.ts); `meta` also has other values. */
async function* storedSecrets(reader: Pick<Reader, "all">) {
  for (const { table, id, column, of, context } of sealedColumns) {
    const rows = await reader.all(
      `SELECT ${id} AS row_id, ${column} AS sealed, ${of} FROM ${table} WHERE ${column} LIKE 's1.%'`,
    );
    for (const row of rows) {
      const update = `UPDATE ${table} SET ${column} = $2 WHERE ${id} = $1`;
      yield { id: row["row_id"] ?? null, ...sealedText.parse(row), context: context(row), update };
    }
  }
}

/** Throws bad_configuration if these keys do not open every stored secret. */
export async function checkSecrets(reader: Pick<Reader, "all">, keys: SecretKeys): Promise<void> {
  for await (const { sealed, context } of storedSecrets(reader)) openSecret(keys, sealed, context);
}

/** Seals everything with the first key. Returns how many secrets had another key. */
async function sealAll(tx: Transaction, keys: SecretKeys, keyId: string): Promise<number> {
  let count = 0;
  for await (const { id, sealed, context, update } of storedSecrets(tx)) {
    if (keyIdOfEnvelope(sealed) === keyId) continue;
    await tx.run(update, [id, sealSecret(keys, openSecret(keys, sealed, context), context)]);
    count++;
  }
  return count;
}

/** The file with the replaced keys. */
export function formerKeyPath(path: string): string {
  return `${path}.former`;
}

function keepFormer(path: string, keys: readonly Uint8Array[]): void {
  const kept = existsSync(path) ? readSecretKeys(path) : [];
  const ids = new Set(kept.map(secretKeyId));
  writeSecretKeys(path, [...keys.filter((key) => !ids.has(secretKeyId(key))), ...kept]);
}
