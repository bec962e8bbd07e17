// The private key of an overlay CA in the engine's PEM formats: plain, or encrypted with a passphrase (Argon2id and
// AES-256-GCM). The encrypted form is a protobuf message: {1 metadata {1 algorithm, 2 parameters {1 version, 2 memory, 3 passes,
// 4 parallelism, 5 salt}}, 2 nonce, ciphertext and tag}. Must not log or write files.

import { argon2, createCipheriv, createDecipheriv, randomBytes, type KeyObject } from "node:crypto";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { AppError } from "../base/errors.ts";
import type { Curve } from "./curve.ts";
import { rawPublicKey, signingKey } from "./keys.ts";
import { formatPem, parseOnePem } from "./pem.ts";

export type CaKey = { curve: Curve; privateKey: KeyObject };

const plainBanners = {
  "25519": "NEBULA ED25519 PRIVATE KEY",
  P256: "NEBULA ECDSA P256 PRIVATE KEY",
} as const satisfies Record<Curve, string>;
const encryptedBanners = {
  "25519": "NEBULA ED25519 ENCRYPTED PRIVATE KEY",
  P256: "NEBULA ECDSA P256 ENCRYPTED PRIVATE KEY",
} as const satisfies Record<Curve, string>;

/** The PEM labels of such keys. */
export const caKeyBanners: readonly string[] = [
  ...Object.values(plainBanners),
  ...Object.values(encryptedBanners),
];

export function isEncryptedCaKey(pem: string): boolean {
  return Object.values(encryptedBanners).some((banner) => pem.includes(`BEGIN ${banner}`));
}

const algorithm = "AES-256-GCM";
const argon2Version = 0x13;
const nonceLength = 12;
const tagLength = 16;

/** Cost of the key derivation; memory in KiB. */
export type Argon2Cost = { memory: number; passes: number; parallelism: number };

/** For new files: 64 MiB, 3 passes, 4 lanes (RFC 9106, section 4, second recommendation). */
const argon2Cost: Argon2Cost = { memory: 65_536, passes: 3, parallelism: 4 };
/** Maxima for reading, so that a file cannot demand hours. The engine's default is 2 GiB and one pass. */
const argon2Limit: Argon2Cost = { memory: 2_097_152, passes: 64, parallelism: 64 };

export function formatCaKey(key: CaKey): string {
  return formatPem(plainBanners[key.curve], rawCaKey(key));
}

/**
 * Reads a plain or encrypted key. Throws `bad_request` (not such a key, wrong length, mismatched halves) or
 * `invalid_credentials` (passphrase missing or wrong).
 */
export async function readCaKey(pem: string, passphrase?: string): Promise<CaKey> {
  const block = parseOnePem(pem, caKeyBanners);
  const curve = block.banner.includes("P256") ? "P256" : "25519";
  if (block.banner === plainBanners[curve]) return fromRaw(curve, block.bytes);
  if (passphrase === undefined) {
    throw new AppError("invalid_credentials", "The CA key is encrypted: enter its passphrase");
  }
  return fromRaw(curve, await decrypt(block.bytes, passphrase));
}

export async function encryptCaKey(key: CaKey, passphrase: string, cost = argon2Cost): Promise<string> {
  if (passphrase === "")
    throw new AppError("invalid_credentials", "The passphrase of a CA key cannot be empty");
  const salt = randomBytes(32);
  const nonce = randomBytes(nonceLength);
  const cipher = createCipheriv("aes-256-gcm", await derive(passphrase, salt, cost), nonce);
  const encrypted = Buffer.concat([nonce, cipher.update(rawCaKey(key)), cipher.final(), cipher.getAuthTag()]);
  const writer = new BinaryWriter().tag(1, WireType.LengthDelimited).fork();
  writer.tag(1, WireType.LengthDelimited).string(algorithm).tag(2, WireType.LengthDelimited).fork();
  writer.tag(1, WireType.Varint).uint32(argon2Version).tag(2, WireType.Varint).uint32(cost.memory);
  writer.tag(3, WireType.Varint).uint32(cost.passes).tag(4, WireType.Varint).uint32(cost.parallelism);
  writer.tag(5, WireType.LengthDelimited).bytes(salt).join().join();
  return formatPem(
    encryptedBanners[key.curve],
    writer.tag(2, WireType.LengthDelimited).bytes(encrypted).finish(),
  );
}

/** Ed25519: seed and public half, 64 bytes. P-256: the scalar, 32 bytes. */
function rawCaKey({ curve, privateKey }: CaKey): Uint8Array {
  const secret = Buffer.from(privateKey.export({ format: "jwk" }).d ?? "", "base64url");
  return curve === "25519" ? Buffer.concat([secret, rawPublicKey(privateKey)]) : secret;
}

function fromRaw(curve: Curve, raw: Uint8Array): CaKey {
  const length = curve === "25519" ? 64 : 32;
  if (raw.length !== length) {
    throw new AppError(
      "bad_request",
      `A CA key of this kind has ${length} bytes, this one has ${raw.length}`,
    );
  }
  const privateKey = signingKey(curve, raw.subarray(0, 32));
  const halvesFit = curve === "P256" || Buffer.compare(rawPublicKey(privateKey), raw.subarray(32)) === 0;
  if (!halvesFit) throw new AppError("bad_request", "The two halves of the CA key do not match");
  return { curve, privateKey };
}

async function decrypt(bytes: Uint8Array, passphrase: string): Promise<Uint8Array> {
  const { cost, salt, ciphertext } = readEncrypted(bytes);
  const key = await derive(passphrase, salt, cost);
  try {
    const decipher = createDecipheriv("aes-256-gcm", key, ciphertext.subarray(0, nonceLength));
    decipher.setAuthTag(ciphertext.subarray(-tagLength));
    return Buffer.concat([decipher.update(ciphertext.subarray(nonceLength, -tagLength)), decipher.final()]);
  } catch (error) {
    throw new AppError(
      "invalid_credentials",
      "Cannot decrypt the CA key: the passphrase is wrong, or the file was changed",
      {
        cause: error,
      },
    );
  }
}

/** `ciphertext`: with nonce and tag. */
type Encrypted = { cost: Argon2Cost; salt: Uint8Array; ciphertext: Uint8Array };

function readEncrypted(bytes: Uint8Array): Encrypted {
  const file = readMessage(bytes);
  const metadata = readMessage(file.bytes(1));
  const parameters = readMessage(metadata.bytes(2));
  const algorithmName = Buffer.from(metadata.bytes(1)).toString();
  const cost = {
    memory: parameters.number(2),
    passes: parameters.number(3),
    parallelism: parameters.number(4),
  };
  const salt = parameters.bytes(5);
  const ciphertext = file.bytes(2);
  if (algorithmName !== algorithm || parameters.number(1) !== argon2Version) {
    throw new AppError("bad_request", `The CA key is encrypted with an unknown algorithm`);
  }
  const names = ["memory", "passes", "parallelism"] as const;
  const outside = names.find((name) => cost[name] < 1 || cost[name] > argon2Limit[name]);
  if (outside !== undefined || salt.length < 16 || ciphertext.length < nonceLength + tagLength) {
    throw new AppError(
      "bad_request",
      `The encrypted CA key has parameters out of range (${outside ?? "length"})`,
    );
  }
  return { cost, salt, ciphertext };
}

type Message = { number(field: number): number; bytes(field: number): Uint8Array };

/** The fields of a protobuf message by number. As in proto3, a missing field is empty. */
function readMessage(bytes: Uint8Array): Message {
  const numbers = new Map<number, number>();
  const byteFields = new Map<number, Uint8Array>();
  const reader = new BinaryReader(bytes);
  try {
    while (reader.pos < reader.len) {
      const [field, type] = reader.tag();
      if (type === WireType.Varint) numbers.set(field, reader.uint32());
      else if (type === WireType.LengthDelimited) byteFields.set(field, reader.bytes());
      else throw new RangeError("a field of another type");
    }
  } catch (error) {
    throw new AppError("bad_request", "The encrypted CA key cannot be read", { cause: error });
  }
  return {
    number: (field) => numbers.get(field) ?? 0,
    bytes: (field) => byteFields.get(field) ?? new Uint8Array(),
  };
}

/** The key of 32 bytes for a passphrase. Node calls the salt a nonce. */
function derive(passphrase: string, salt: Uint8Array, cost: Argon2Cost): Promise<Buffer> {
  const message = Buffer.from(passphrase);
  return new Promise((resolve, reject) => {
    argon2("argon2id", { message, nonce: salt, tagLength: 32, ...cost }, (error, key) => {
      if (error === null) resolve(key);
      else reject(new AppError("failed", "Cannot derive a key from the passphrase", { cause: error }));
    });
  });
}
