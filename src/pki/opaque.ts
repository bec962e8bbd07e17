// Opaque bearer tokens (node, registration, service): a random text for the client, its hash for the database.

import type { System } from "../base/system.ts";
import { sha256Hex } from "../base/sha256.ts";

/** 32 random bytes as URL-safe base64 without padding: 43 characters. */
export function makeOpaqueToken(random: System["random"]): string {
  return Buffer.from(random(32)).toString("base64url");
}

/** SHA-256 in hex. The token has 256 bits of entropy, so a plain hash is safe. */
export function hashToken(token: string): string {
  return sha256Hex(token);
}
