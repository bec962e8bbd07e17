// Certificates and keys that the engine's own tool made (versions 1.6.1 and 1.11.0), with every input and output
// byte. Throwaway material. They are valid from 2026-11-20: tests say what time it is.

import * as v from "valibot";
import file from "./nebula-certificates.json" with { type: "json" };

const Vector = v.object({
  file: v.string(),
  version: v.picklist([1, 2]),
  input: v.object({
    name: v.string(),
    networks: v.array(v.string()),
    unsafeNetworks: v.array(v.string()),
    groups: v.array(v.string()),
    isCA: v.boolean(),
    notBefore: v.number(),
    notAfter: v.number(),
    curve: v.picklist(["CURVE25519", "P256"]),
    publicKey: v.string(),
    issuer: v.string(),
  }),
  signedBytesHex: v.string(),
  signatureHex: v.string(),
  fingerprint: v.string(),
  derOrProtoHex: v.string(),
  pem: v.string(),
});
export type Vector = v.InferOutput<typeof Vector>;

export const vectors = v.parse(v.array(Vector), file.certs);
export const keys: Readonly<Record<string, string>> = file.keys;
export const signerKeyOf: Readonly<Record<string, string | null>> = file.signerKeyOf;
export const passphrase = "vector passphrase";
/** A time at which all of them are valid, Unix seconds. */
export const vectorTime = 1_800_000_000;

export function vector(name: string): Vector {
  const found = vectors.find((each) => each.file === name);
  if (found === undefined) throw new Error(`There is no vector ${name}`);
  return found;
}

export function key(name: string): string {
  const found = keys[name];
  if (found === undefined) throw new Error(`There is no key ${name}`);
  return found;
}

export function hex(text: string): Uint8Array {
  return Uint8Array.from(Buffer.from(text, "hex"));
}

export function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}
