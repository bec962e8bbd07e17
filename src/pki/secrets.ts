// Encrypts secrets for the database (AES-256-GCM) with a key from outside the database. Must not log secrets.

import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  hash,
  hkdfSync,
  randomBytes,
  type Hmac,
} from "node:crypto";
import { AppError } from "../base/errors.ts";

const cipher = "aes-256-gcm";
const nonceLength = 12;
const tagLength = 16;
const envelopePattern = /^s1\.([0-9a-f]{16})\.([A-Za-z0-9_-]+)$/;

/** One key, or a function that returns the current keys during a key rotation: the first encrypts, all can decrypt. */
export type SecretKeys = Uint8Array | readonly Uint8Array[] | (() => readonly Uint8Array[]);

/** The public id of a key, part of each envelope encrypted with it. Reveals nothing about the key. */
export function secretKeyId(key: Uint8Array): string {
  if (key.length !== 32) {
    throw new AppError("bad_configuration", `The secret key must be 32 bytes, it has ${key.length}`);
  }
  return hash("sha256", Buffer.concat([Buffer.from("overlay secret key id\0"), key]), "hex").slice(0, 16);
}

/** The ids of the keys; the first one encrypts. */
export function secretKeyIds(keys: SecretKeys): string[] {
  return listOf(keys).map(secretKeyId);
}

/**
 * Returns `s1.<key id>.<base64url of nonce, ciphertext, tag>`. Authenticates the context ("ca:acme"), so an envelope
 * does not decrypt in another row. Random 96-bit nonces (NIST SP 800-38D) are safe for 2^32 secrets per key.
 */
export function sealSecret(keys: SecretKeys, plaintext: string, context: string): string {
  const [key] = listOf(keys);
  if (key === undefined) throw new AppError("bad_configuration", "The secret key is missing");
  const keyId = secretKeyId(key);
  const nonce = randomBytes(nonceLength);
  const sealer = createCipheriv(cipher, key, nonce, { authTagLength: tagLength });
  sealer.setAAD(Buffer.from(`${keyId}\0${context}`));
  const body = Buffer.concat([nonce, sealer.update(plaintext, "utf8"), sealer.final(), sealer.getAuthTag()]);
  return `s1.${keyId}.${body.toString("base64url")}`;
}

/** The id of the key of an envelope. Throws `bad_configuration` for any other text. */
export function keyIdOfEnvelope(envelope: string): string {
  return splitEnvelope(envelope).keyId;
}

/** Decrypts an envelope. Throws `bad_configuration`: not an envelope, unknown key, changed, or another context. */
export function openSecret(keys: SecretKeys, envelope: string, context: string): string {
  const { keyId, body } = splitEnvelope(envelope);
  const key = listOf(keys).find((candidate) => secretKeyId(candidate) === keyId);
  if (key === undefined) {
    throw new AppError(
      "bad_configuration",
      `A stored secret needs the secret key ${keyId}, which is missing`,
      {
        hint: "Start with the secret key of this database: --secret-key-file FILE",
      },
    );
  }
  try {
    const opener = createDecipheriv(cipher, key, body.subarray(0, nonceLength), { authTagLength: tagLength });
    opener.setAAD(Buffer.from(`${keyId}\0${context}`));
    opener.setAuthTag(body.subarray(-tagLength));
    const opened = [opener.update(body.subarray(nonceLength, -tagLength)), opener.final()];
    return Buffer.concat(opened).toString("utf8");
  } catch (error) {
    throw new AppError("bad_configuration", "A stored secret was changed, or belongs to another record", {
      cause: error,
    });
  }
}

/**
 * HMAC-SHA256 with a key derived for this purpose, from the first key or the one with this id. Undefined if no key has
 * the id.
 */
export function startMac(
  keys: SecretKeys,
  purpose: string,
  id?: string,
): { keyId: string; mac: Hmac } | undefined {
  const key = listOf(keys).find((candidate) => id === undefined || secretKeyId(candidate) === id);
  if (key === undefined) return undefined;
  const derived = hkdfSync("sha256", key, "", `overlay mac: ${purpose}`, 32);
  return { keyId: secretKeyId(key), mac: createHmac("sha256", Buffer.from(derived)) };
}

function listOf(keys: SecretKeys): readonly Uint8Array[] {
  if (keys instanceof Uint8Array) return [keys];
  return typeof keys === "function" ? keys() : keys;
}

function splitEnvelope(envelope: string): { keyId: string; body: Buffer } {
  const [, keyId, encoded] = envelopePattern.exec(envelope) ?? [];
  const body = Buffer.from(encoded ?? "", "base64url");
  if (keyId === undefined || body.length < nonceLength + tagLength) {
    throw new AppError("bad_configuration", "A stored secret does not have the form s1.<key>.<data>");
  }
  return { keyId, body };
}
