// Signs tokens with any header and content, for tests.

import { createPrivateKey, sign } from "node:crypto";
import type { SigningKey } from "../../src/pki/tokens.ts";

export function segment(value: unknown): string {
  return (Buffer.isBuffer(value) ? value : Buffer.from(JSON.stringify(value))).toString("base64url");
}

/** A compact JWS with a true Ed25519 signature over whatever header and payload. */
export function forgery(key: SigningKey, header: unknown, payload: unknown): string {
  const input = `${segment(header)}.${segment(payload)}`;
  const signature = sign(null, Buffer.from(input), createPrivateKey({ key, format: "jwk" }));
  return `${input}.${signature.toString("base64url")}`;
}
