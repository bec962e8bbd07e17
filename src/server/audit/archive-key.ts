// The Ed25519 key that signs archives of events. All replicas share it, sealed in the database. Its public half verifies
// archives without the server.

import { openSecret, type SecretKeys } from "../../pki/secrets.ts";
import { rawPublicKey, signingKey } from "../../pki/keys.ts";
import { signBytes, verifyBytes } from "../../pki/signature.ts";
import type { ServerOptions } from "../options.ts";
import type { Reader } from "../store/database.ts";
import { readMeta } from "../store/meta.ts";
import { sharedSecret } from "../store/shared-secret.ts";

const metaKey = "archive_key";

/** `publicKey`: 32 bytes in hex. The signature: 64 bytes in base64. */
export type ArchiveKey = { publicKey: string; sign(text: string): string };

/** Creates the key at the first use. */
export async function openArchiveKey(
  deps: Pick<ServerOptions, "db" | "secretKey" | "system">,
): Promise<ArchiveKey> {
  const seed = await sharedSecret(deps, metaKey, async () =>
    Buffer.from(deps.system.random(32)).toString("base64url"),
  );
  const key = keyOf(seed);
  return {
    publicKey: publicHex(seed),
    sign: (text) => Buffer.from(signBytes("25519", key, Buffer.from(text))).toString("base64"),
  };
}

/** Undefined before the first archive. */
export async function readPublicArchiveKey(
  reader: Reader,
  secretKey: SecretKeys,
): Promise<string | undefined> {
  const sealed = await readMeta(reader, metaKey);
  return sealed === undefined ? undefined : publicHex(openSecret(secretKey, sealed, metaKey));
}

export function isSignedBy(publicKey: string, text: string, signature: string): boolean {
  const key = Buffer.from(publicKey, "hex");
  if (key.length !== 32) return false;
  return verifyBytes("25519", key, Buffer.from(text), Buffer.from(signature, "base64"));
}

function keyOf(seed: string) {
  return signingKey("25519", Buffer.from(seed, "base64url"));
}

function publicHex(seed: string): string {
  return Buffer.from(rawPublicKey(keyOf(seed))).toString("hex");
}
