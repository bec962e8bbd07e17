// Minisign signatures (https://jedisct1.github.io/minisign/, format of 0.11): verifies, and signs for the release
// build. Supports only the prehashed form `ED` (Ed25519 over BLAKE2b-512), the default since minisign 0.10.

import {
  createHash,
  createPrivateKey,
  createPublicKey,
  scryptSync,
  sign,
  verify,
  type KeyObject,
} from "node:crypto";
import { AppError } from "../base/errors.ts";

export type PublicKey = { id: Buffer; key: Buffer };
export type SecretKey = PublicKey & { seed: Buffer };

/** Accepts the base64 line that minisign prints, or the whole file with its comment. The bytes: "Ed", id (8), key (32). */
export function readPublicKey(text: string): PublicKey {
  const bytes = Buffer.from(lastLine(text), "base64");
  if (bytes.length !== 42 || bytes.toString("latin1", 0, 2) !== "Ed") {
    throw new AppError("failed", "Cannot read the minisign public key: it is damaged");
  }
  return { id: bytes.subarray(2, 10), key: bytes.subarray(10) };
}

/** The base64 line that readPublicKey takes. */
export function writePublicKey(key: PublicKey): string {
  return Buffer.concat([Buffer.from("Ed"), key.id, key.key]).toString("base64");
}

/** The name that minisign prints for a key: its id in upper-case hex, byte order reversed. */
function keyName(id: Buffer): string {
  return Buffer.from(id).reverse().toString("hex").toUpperCase();
}

/**
 * Verifies `content` and the trusted comment with any of the keys. Returns the trusted comment; throws the reason. `signature`: a
 * file of four lines: a comment; "ED", id (8) and signature of the content (64) in base64; the trusted comment; the global
 * signature (64) in base64, which covers the signature and the trusted comment.
 */
export function verifySignature(content: Uint8Array, signature: string, keys: readonly PublicKey[]): string {
  const [commentLine = "", signatureLine = "", trustedLine = "", globalLine = ""] = signature.split(/\r?\n/);
  const bytes = Buffer.from(signatureLine, "base64");
  const global = Buffer.from(globalLine, "base64");
  const prefix = "trusted comment: ";
  if (
    !commentLine.startsWith("untrusted comment: ") ||
    bytes.length !== 74 ||
    global.length !== 64 ||
    !trustedLine.startsWith(prefix)
  ) {
    throw new AppError("failed", "The signature file is damaged");
  }
  if (bytes.toString("latin1", 0, 2) !== "ED") {
    throw new AppError("failed", "The signature does not have the prehashed form (ED)");
  }
  const id = bytes.subarray(2, 10);
  const known = keys.find((key) => key.id.equals(id));
  if (known === undefined) {
    throw new AppError("failed", `The signature is from an unknown key (${keyName(id)})`);
  }
  const comment = trustedLine.slice(prefix.length);
  const key = publicKeyObject(known.key);
  if (!verify(null, prehash(content), key, bytes.subarray(10))) {
    throw new AppError("failed", "The signature does not match the content");
  }
  if (!verify(null, Buffer.concat([bytes.subarray(10), Buffer.from(comment)]), key, global)) {
    throw new AppError("failed", "The signature does not match its trusted comment");
  }
  return comment;
}

/** The text of a .minisig file. */
export function makeSignature(content: Uint8Array, key: SecretKey, trustedComment: string): string {
  const secret = privateKeyObject(key.seed);
  const signature = sign(null, prehash(content), secret);
  const global = sign(null, Buffer.concat([signature, Buffer.from(trustedComment)]), secret);
  return [
    `untrusted comment: signature from minisign secret key ${keyName(key.id)}`,
    Buffer.concat([Buffer.from("ED"), key.id, signature]).toString("base64"),
    `trusted comment: ${trustedComment}`,
    global.toString("base64"),
    "",
  ].join("\n");
}

/**
 * Reads a secret key file of minisign. Keys from `minisign -G -W` have no password. The bytes: "Ed", how the password is used ("Sc"
 * or zeros), "B2", salt (32), two limits (8 each), then a body: id (8), seed (32), public key (32), checksum (32). With a password
 * the body is combined with a stream derived from it.
 */
export function readSecretKey(text: string, password: string | undefined): SecretKey {
  const bytes = Buffer.from(lastLine(text), "base64");
  const kind = bytes.toString("latin1", 0, 2);
  const derivation = bytes.toString("latin1", 2, 4);
  if (bytes.length !== 158 || kind !== "Ed")
    throw new AppError("failed", "Cannot read the minisign secret key: it is damaged");
  const body = Buffer.from(bytes.subarray(54));
  if (derivation === "Sc") {
    if (password === undefined)
      throw new AppError("failed", "The secret key has a password: add --secret-key-password-file FILE");
    const stream = passwordStream(
      password,
      bytes.subarray(6, 38),
      bytes.readBigUInt64LE(38),
      bytes.readBigUInt64LE(46),
    );
    for (let at = 0; at < body.length; at++) body[at] = (body[at] ?? 0) ^ (stream[at] ?? 0);
  }
  const id = body.subarray(0, 8);
  const seed = body.subarray(8, 40);
  const key = body.subarray(40, 72);
  // The stored public half shows whether the password is right.
  if (!rawPublicKey(createPublicKey(privateKeyObject(seed))).equals(key)) {
    throw new AppError("failed", "The password of the secret key is wrong, or its file is damaged");
  }
  return { id, seed, key };
}

/**
 * The stream for a body of 104 bytes: libsodium's crypto_pwhash_scryptsalsa208sha256, which derives the parameters of scrypt from
 * the two limits in this way.
 */
function passwordStream(password: string, salt: Uint8Array, opsLimit: bigint, memLimit: bigint): Buffer {
  const ops = Math.max(Number(opsLimit), 32_768);
  const memory = Number(memLimit);
  const isOpsTheLimit = ops < memory / 32;
  const maxN = isOpsTheLimit ? ops / 32 : memory / 1024;
  let cost = 2;
  while (cost <= maxN / 2) cost *= 2;
  const parallel = isOpsTheLimit
    ? 1
    : Math.max(1, Math.floor(Math.min(Math.floor(ops / 4 / cost), 0x3fffffff) / 8));
  if (cost > 2 ** 21 || parallel > 64)
    throw new AppError("failed", "Cannot read the minisign secret key: it is damaged");
  return scryptSync(password, salt, 104, {
    N: cost,
    r: 8,
    p: parallel,
    maxmem: 256 * cost * 8 + 128 * 8 * parallel + 1024 * 1024,
  });
}

function prehash(content: Uint8Array): Buffer {
  return createHash("blake2b512").update(content).digest();
}

/** RFC 8410: every Ed25519 key has the same DER prefix. */
function publicKeyObject(raw: Buffer): KeyObject {
  const der = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), raw]);
  return createPublicKey({ key: der, format: "der", type: "spki" });
}

function privateKeyObject(seed: Buffer): KeyObject {
  const der = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]);
  return createPrivateKey({ key: der, format: "der", type: "pkcs8" });
}

function rawPublicKey(key: KeyObject): Buffer {
  return key.export({ format: "der", type: "spki" }).subarray(-32);
}

function lastLine(text: string): string {
  return text.trim().split(/\r?\n/).at(-1) ?? "";
}
