// Creates and parses keys in the formats of the engine (raw bytes in PEM) and of X.509 (PKCS#8 for P-256). Must not
// write files or log.

import {
  createECDH,
  createPrivateKey,
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  hash,
  type KeyObject,
} from "node:crypto";
import { AppError } from "../base/errors.ts";
import { publicKeyLength, type Curve } from "./curve.ts";
import { formatPem, parseOnePem } from "./pem.ts";

export const hostPublicBanner = "NEBULA X25519 PUBLIC KEY";
const hostPrivateBanner = "NEBULA X25519 PRIVATE KEY";

/** DER up to the raw key: PKCS#8 (RFC 8410), SEC 1 (RFC 5915) and SubjectPublicKeyInfo. */
const prefixes = {
  ed25519Private: "302e020100300506032b657004220420",
  x25519Private: "302e020100300506032b656e04220420",
  ed25519Public: "302a300506032b6570032100",
  x25519Public: "302a300506032b656e032100",
  p256Public: "3059301306072a8648ce3d020106082a8648ce3d030107034200",
} as const;

/** A host's overlay key pair in the engine's PEM format, 32 raw bytes each (X25519, RFC 7748). */
export function makeHostKey(): { publicPem: string; privatePem: string } {
  const { privateKey } = generateKeyPairSync("x25519");
  const { d, x } = privateKey.export({ format: "jwk" });
  return {
    publicPem: formatPem(hostPublicBanner, Buffer.from(x ?? "", "base64url")),
    privatePem: formatPem(hostPrivateBanner, Buffer.from(d ?? "", "base64url")),
  };
}

/**
 * The 32 bytes of a host's public key. Throws `bad_request`, also for the points of low order (RFC 7748, 6.1): anyone
 * could impersonate a node with such a key.
 */
export function readHostPublicKey(pem: string): Uint8Array {
  const { bytes } = parseOnePem(pem, [hostPublicBanner]);
  expectLength(bytes, 32, hostPublicBanner);
  try {
    const { privateKey } = generateKeyPairSync("x25519");
    diffieHellman({ privateKey, publicKey: publicKeyFromDer(prefixes.x25519Public, bytes) });
  } catch (error) {
    throw new AppError("bad_request", "The host's public key is not a usable X25519 key", { cause: error });
  }
  return bytes;
}

/** The public half (32 bytes) of a private key from `makeHostKey`. Throws `bad_request`. */
export function publicOfHostKey(privatePem: string): Uint8Array {
  const { bytes } = parseOnePem(privatePem, [hostPrivateBanner]);
  expectLength(bytes, 32, hostPrivateBanner);
  return rawPublicKey(privateKeyFromDer(prefixes.x25519Private, bytes));
}

export function formatHostPublicKey(raw: Uint8Array): string {
  return formatPem(hostPublicBanner, raw);
}

/** SHA-256 of a public key in the engine's PEM format, in hex. */
export function fingerprintOfHostKey(publicPem: string): string {
  return hash("sha256", parseOnePem(publicPem, [hostPublicBanner]).bytes, "hex");
}

/** The public half in the engine's PEM format. Throws `bad_request`. */
export function publicPemOfHostKey(privatePem: string): string {
  return formatPem(hostPublicBanner, publicOfHostKey(privatePem));
}

/** The key of a node's X.509 certificate: P-256, PKCS#8. */
export function makeNodeKey(): { privatePem: string } {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  return { privatePem: privateKey.export({ format: "pem", type: "pkcs8" }) };
}

/** Whether it is a private key that `makeHostKey` could have made. */
export function isHostKey(pem: string): boolean {
  return succeeds(() => publicOfHostKey(pem));
}

/** Whether it is a private key in PEM. */
export function isNodeKey(pem: string): boolean {
  return succeeds(() => createPrivateKey(pem));
}

function succeeds(work: () => unknown): boolean {
  try {
    work();
    return true;
  } catch {
    return false;
  }
}

/** The key object of a raw signing key: the 32-byte Ed25519 seed, or the 32-byte P-256 scalar. */
export function signingKey(curve: Curve, raw: Uint8Array): KeyObject {
  expectLength(raw, 32, "signing key");
  return curve === "25519" ? privateKeyFromDer(prefixes.ed25519Private, raw) : p256PrivateKey(raw);
}

/** The key object for verification: 32 bytes of Ed25519, or an uncompressed P-256 point of 65. Throws `bad_request`. */
export function verifyingKey(curve: Curve, raw: Uint8Array): KeyObject {
  expectLength(raw, publicKeyLength[curve], "public key");
  return publicKeyFromDer(curve === "25519" ? prefixes.ed25519Public : prefixes.p256Public, raw);
}

/** 32 raw bytes (Ed25519, X25519) or 65 (P-256) of a key object's public half. */
export function rawPublicKey(key: KeyObject): Uint8Array {
  const publicKey = key.type === "private" ? createPublicKey(key) : key;
  const der = publicKey.export({ format: "der", type: "spki" });
  return Uint8Array.from(der.subarray(-(publicKey.asymmetricKeyType === "ec" ? 65 : 32)));
}

function privateKeyFromDer(prefix: string, raw: Uint8Array): KeyObject {
  const key = Buffer.concat([Buffer.from(prefix, "hex"), raw]);
  try {
    return createPrivateKey({ key, format: "der", type: "pkcs8" });
  } catch (error) {
    throw new AppError("bad_request", "The private key is not valid for its curve", { cause: error });
  }
}

/** The DER reader of the runtime also needs the public point, so compute it. */
function p256PrivateKey(scalar: Uint8Array): KeyObject {
  try {
    const pair = createECDH("prime256v1");
    pair.setPrivateKey(scalar);
    const point = pair.getPublicKey();
    const text = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64url");
    const jwk = {
      kty: "EC",
      crv: "P-256",
      d: text(scalar),
      x: text(point.subarray(1, 33)),
      y: text(point.subarray(33)),
    };
    return createPrivateKey({ key: jwk, format: "jwk" });
  } catch (error) {
    throw new AppError("bad_request", "The private key is not valid for its curve", { cause: error });
  }
}

function publicKeyFromDer(prefix: string, raw: Uint8Array): KeyObject {
  const key = Buffer.concat([Buffer.from(prefix, "hex"), raw]);
  try {
    return createPublicKey({ key, format: "der", type: "spki" });
  } catch (error) {
    throw new AppError("bad_request", "The public key is not a point on its curve", { cause: error });
  }
}

function expectLength(bytes: Uint8Array, length: number, what: string): void {
  if (bytes.length !== length) {
    throw new AppError("bad_request", `A ${what} has ${length} bytes, this one has ${bytes.length}`);
  }
}
