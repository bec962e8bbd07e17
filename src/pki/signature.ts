// Signatures of overlay certificates: Ed25519 over the bytes, or ECDSA P-256 over their SHA-256. Each P-256 signature
// has a second valid form (s and N-s). We create the one with the low s, and can compute the other.

import { sign, verify, type KeyObject } from "node:crypto";
import { badCertificate } from "./certificate.ts";
import type { Curve } from "./curve.ts";
import { verifyingKey } from "./keys.ts";

/** Order of the group of P-256 (FIPS 186-4, D.1.2.3). */
const order = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;

/** 64 raw bytes, or for P-256 the DER of SEQUENCE {r, s} with the low s. */
export function signBytes(curve: Curve, key: KeyObject, bytes: Uint8Array): Uint8Array {
  if (curve === "25519") return sign(null, bytes, key);
  const raw = sign("sha256", bytes, { key, dsaEncoding: "ieee-p1363" });
  const s = toNumber(raw.subarray(32));
  return encodePair(toNumber(raw.subarray(0, 32)), s > order / 2n ? order - s : s);
}

/** False for a wrong signature, and for bytes that are not a signature. */
export function verifyBytes(
  curve: Curve,
  publicKey: Uint8Array,
  bytes: Uint8Array,
  signature: Uint8Array,
): boolean {
  const key = verifyingKey(curve, publicKey);
  if (curve === "25519") return signature.length === 64 && verify(null, bytes, key, signature);
  // BoringSSL parses DER strictly, so there is no third form.
  return verify("sha256", bytes, { key, dsaEncoding: "der" }, signature);
}

/** The second form of a P-256 signature: a blocklist needs both. Throws `bad_request` if it is not a DER pair. */
export function twinSignature(signature: Uint8Array): Uint8Array {
  const { r, s } = decodePair(signature);
  return encodePair(r, order - s);
}

function encodePair(r: bigint, s: bigint): Uint8Array {
  const body = Buffer.concat([encodeInteger(r), encodeInteger(s)]);
  return Buffer.concat([Uint8Array.of(0x30, body.length), body]);
}

function encodeInteger(value: bigint): Uint8Array {
  const hex = value.toString(16);
  const bytes = Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, "hex");
  const padded = (bytes[0] ?? 0) >= 0x80 ? Buffer.concat([Uint8Array.of(0), bytes]) : bytes;
  return Buffer.concat([Uint8Array.of(2, padded.length), padded]);
}

/** From SEQUENCE (2 bytes), then INTEGER with tag, length and value, for r and for s. */
function decodePair(signature: Uint8Array): { r: bigint; s: bigint } {
  const rLength = signature[3] ?? 0;
  const r = toNumber(signature.subarray(4, 4 + rLength));
  const s = toNumber(signature.subarray(6 + rLength));
  const inRange = r > 0n && r < order && s > 0n && s < order;
  if (!inRange || Buffer.compare(encodePair(r, s), signature) !== 0) {
    throw badCertificate("its signature is not a pair of numbers in DER");
  }
  return { r, s };
}

function toNumber(bytes: Uint8Array): bigint {
  return bytes.length === 0 ? 0n : BigInt(`0x${Buffer.from(bytes).toString("hex")}`);
}
