// Proves that a user's session is on a machine, which knows the token of its node; the control plane knows its hash.
// The token itself is sent only to check-in and download.

import { createHmac } from "node:crypto";
import { hashToken } from "./opaque.ts";

/** `family`: of the session, as its access tokens name it. Base64url, 43 characters. */
export const sessionProof = (nodeToken: string, family: string) => proofOf(hashToken(nodeToken), family);

/** The same from what the control plane stores. */
export function proofOf(tokenHash: string, family: string): string {
  return createHmac("sha256", tokenHash).update(`session ${family}`).digest("base64url");
}
