// Secrets at rest: AES-256-GCM under a key that does not lie in the database. Text in, text out; never logs either.

import { createCipheriv, createDecipheriv, hash, randomBytes } from "node:crypto";
import { AppError } from "../errors.ts";

const cipher = "aes-256-gcm";
const nonceLength = 12;
const tagLength = 16;
const envelopePattern = /^s1\.([0-9a-f]{16})\.([A-Za-z0-9_-]+)$/;

/** One key; or what gives those of the moment, while one is being replaced: the first seals, any of them opens. */
export type SecretKeys = Uint8Array | readonly Uint8Array[] | (() => readonly Uint8Array[]);

/** Names a key without giving anything of it away; stands in each envelope sealed with it. */
export function secretKeyId(key: Uint8Array): string {
  if (key.length !== 32) {
    throw new AppError("bad_configuration", `The secret key must be 32 bytes, it has ${key.length}`);
  }
  return hash("sha256", Buffer.concat([Buffer.from("overlay secret key id\0"), key]), "hex").slice(0, 16);
}

/**
 * `s1.<key id>.<base64url of nonce, ciphertext, tag>`. The context ("ca:acme") is authenticated, so that an envelope
 * moved to another row does not open there. Random 96-bit nonces (NIST SP 800-38D) are safe for 2^32 secrets a key.
 */
export function sealSecret(keys: SecretKeys, plaintext: string, context: string): string {
  const [key] = listOf(keys);
  if (key === undefined) throw new AppError("bad_configuration", "There is no secret key");
  const keyId = secretKeyId(key);
  const nonce = randomBytes(nonceLength);
  const sealer = createCipheriv(cipher, key, nonce, { authTagLength: tagLength });
  sealer.setAAD(Buffer.from(`${keyId}\0${context}`));
  const body = Buffer.concat([nonce, sealer.update(plaintext, "utf8"), sealer.final(), sealer.getAuthTag()]);
  return `s1.${keyId}.${body.toString("base64url")}`;
}

/** The id of the key that opens the envelope. Throws `bad_configuration` if the text is no envelope. */
export function sealedWith(envelope: string): string {
  return splitEnvelope(envelope).keyId;
}

/**
 * Opens what `sealSecret` made. Throws `bad_configuration`: no envelope, none of the keys, altered, or another context.
 */
export function openSecret(keys: SecretKeys, envelope: string, context: string): string {
  const { keyId, body } = splitEnvelope(envelope);
  const key = listOf(keys).find((each) => secretKeyId(each) === keyId);
  if (key === undefined) {
    throw new AppError(
      "bad_configuration",
      `A stored secret was sealed with the key ${keyId}, which is not here`,
      {
        hint: "Give the secret key that belongs to this database (--secret-key-file).",
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
    throw new AppError("bad_configuration", "A stored secret was altered or belongs elsewhere", {
      cause: error,
    });
  }
}

function listOf(keys: SecretKeys): readonly Uint8Array[] {
  if (keys instanceof Uint8Array) return [keys];
  return typeof keys === "function" ? keys() : keys;
}

function splitEnvelope(envelope: string): { keyId: string; body: Buffer } {
  const [, keyId, encoded] = envelopePattern.exec(envelope) ?? [];
  const body = Buffer.from(encoded ?? "", "base64url");
  if (keyId === undefined || body.length < nonceLength + tagLength) {
    throw new AppError("bad_configuration", "A stored secret is not in the form s1.<key>.<data>");
  }
  return { keyId, body };
}
