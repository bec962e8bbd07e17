// `agent admin key rotate`: every secret at rest is sealed anew with a new key. Killed at any instant, everything still
// opens, and the next run goes on: a key leaves its file only when nothing is sealed with it any more.

import { existsSync } from "node:fs";
import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { lockFile } from "../../platform/file-lock.ts";
import { openSecret, sealSecret, sealedWith, secretKeyId, type SecretKeys } from "../../pki/secrets.ts";
import { OrderKey } from "../../protocol.ts";
import type { System } from "../../system.ts";
import { authorityContext } from "../certificates/make-authorities.ts";
import { orderKeyContext } from "../policy/organizations.ts";
import { readSecretKeys, writeSecretKeys } from "../store/secret-keys.ts";
import {
  numberOf,
  textOf,
  type Database,
  type Reader,
  type Row,
  type Transaction,
} from "../store/database.ts";
import { webhookContext } from "../webhooks/webhooks.ts";

/** Every column with secrets, and what each of them is sealed for. */
export const sealedColumns: readonly {
  table: string;
  id: string;
  column: string;
  /** Other columns that the context is made of. */
  of: string;
  context(row: Row): string;
}[] = [
  {
    table: "authorities",
    id: "id",
    column: "private_key_sealed",
    of: "kind, fingerprint",
    context: (row) =>
      authorityContext(row["kind"] === "x509" ? "x509" : "overlay", textOf(row, "fingerprint")),
  },
  {
    table: "organizations",
    id: "id",
    column: "order_key_sealed",
    of: "order_public",
    context: (row) => orderKeyContext(v.parse(OrderKey, JSON.parse(textOf(row, "order_public"))).kid),
  },
  {
    table: "webhooks",
    id: "id",
    column: "secret_sealed",
    of: "id",
    context: (row) => webhookContext(numberOf(row, "id")),
  },
  { table: "meta", id: "key", column: "value", of: "key", context: (row) => textOf(row, "key") },
];

/** A running server that has sealed something with the former key has stored it by then. */
const stragglersMs = 1500;

export type KeyRotation = {
  /** False where the file now holds both keys, and other replicas need it before the next run. */
  finished: boolean;
  key_id: string;
  resealed: number;
  /** Where the former key is kept, for the backups made with it. */
  former_key_file?: string;
};

/** `hasReplicas`: others may read copies of the key file, which have to know the new key first. */
export async function rotateSecretKey(
  { db, system }: { db: Database; system: Pick<System, "random" | "sleep"> },
  path: string,
  hasReplicas: boolean,
): Promise<KeyRotation> {
  const lock = lockFile(`${path}.lock`);
  if (lock === undefined) throw new AppError("busy", "Another run replaces the secret key");
  try {
    const present = readSecretKeys(path);
    // A run that did not come to its end has left two: its work is taken up, no third key is made.
    const isNew = present.length === 1;
    if (isNew) {
      present.unshift(system.random(32));
      writeSecretKeys(path, present);
    }
    const [fresh, ...former] = present;
    if (fresh === undefined) throw new AppError("internal", `${path} holds no key`);
    const key_id = secretKeyId(fresh);
    if (isNew && hasReplicas) return { finished: false, key_id, resealed: 0 };
    const seal = () => db.write((tx) => sealAll(tx, present, key_id));
    let resealed = await seal();
    for (let late = 1; late > 0; resealed += late) {
      await system.sleep(stragglersMs);
      late = await seal();
    }
    const former_key_file = formerKeyPath(path);
    keepFormer(former_key_file, former);
    writeSecretKeys(path, [fresh]);
    return { finished: true, key_id, resealed, former_key_file };
  } finally {
    lock.release();
  }
}

/** Every secret as it is stored, with the row that it belongs to. */
async function* storedSecrets(reader: Pick<Reader, "all">) {
  for (const { table, id, column, of, context } of sealedColumns) {
    const rows = await reader.all(
      `SELECT ${id} AS row_id, ${column} AS sealed, ${of} FROM ${table} WHERE ${column} LIKE 's1.%'`,
    );
    for (const row of rows) {
      const update = `UPDATE ${table} SET ${column} = $2 WHERE ${id} = $1`;
      yield { id: row["row_id"] ?? null, sealed: textOf(row, "sealed"), context: context(row), update };
    }
  }
}

/** Throws bad_configuration where a stored secret does not open with these keys. */
export async function checkSecrets(reader: Pick<Reader, "all">, keys: SecretKeys): Promise<void> {
  for await (const { sealed, context } of storedSecrets(reader)) openSecret(keys, sealed, context);
}

/** What is sealed with another key than the first is sealed with that; how many it were. */
async function sealAll(tx: Transaction, keys: SecretKeys, keyId: string): Promise<number> {
  let count = 0;
  for await (const { id, sealed, context, update } of storedSecrets(tx)) {
    if (sealedWith(sealed) === keyId) continue;
    await tx.run(update, [id, sealSecret(keys, openSecret(keys, sealed, context), context)]);
    count++;
  }
  return count;
}

/** Where the keys that were replaced are kept. */
export function formerKeyPath(path: string): string {
  return `${path}.former`;
}

function keepFormer(path: string, keys: readonly Uint8Array[]): void {
  const kept = existsSync(path) ? readSecretKeys(path) : [];
  const ids = new Set(kept.map(secretKeyId));
  writeSecretKeys(path, [...keys.filter((key) => !ids.has(secretKeyId(key))), ...kept]);
}
