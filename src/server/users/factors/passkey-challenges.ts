// Challenges for passkeys. They are not stored, so that a flood of requests fills no table: a challenge proves by its MAC
// who may use it, for what, and until when. Its use is stored, so it counts once.

import { createHmac, timingSafeEqual } from "node:crypto";
import { AppError } from "../../../base/errors.ts";
import { makeOpaqueToken } from "../../../pki/opaque.ts";
import type { ServerOptions } from "../../options.ts";
import type { Transaction } from "../../store/database.ts";
import { sharedSecret } from "../../store/shared-secret.ts";
import { useOnce } from "../../store/tables/users.ts";

type Deps = Pick<ServerOptions, "db" | "system" | "secretKey">;

const lifetimeMs = 5 * 60_000;
const randomLength = 43;
const pattern = /^([\w-]{43})\.(\d{13,15})\.([\w-]{43})$/;

/** `purpose`: what the challenge is for, with the user and the sign-in that may use it. */
export async function makeChallenge(deps: Deps, purpose: string): Promise<string> {
  const random = makeOpaqueToken(deps.system.random).slice(0, randomLength);
  const body = `${random}.${deps.system.now() + lifetimeMs}`;
  return `${body}.${await macOf(deps, body, purpose)}`;
}

/** Whether the challenge is ours, for this purpose, and has not expired. */
export async function isChallenge(deps: Deps, challenge: string, purpose: string): Promise<boolean> {
  const [, random = "", until = "", mac = ""] = pattern.exec(challenge) ?? [];
  if (random === "" || Number(until) <= deps.system.now()) return false;
  const expected = await macOf(deps, `${random}.${until}`, purpose);
  return timingSafeEqual(Buffer.from(mac), Buffer.from(expected));
}

/** Throws invalid_credentials if it was used before. */
export async function useChallenge(tx: Transaction, challenge: string, now: number): Promise<void> {
  if (!(await useOnce(tx, challenge, now + lifetimeMs)))
    throw new AppError("invalid_credentials", "This answer of a passkey was used before. Begin again.");
}

async function macOf(deps: Deps, body: string, purpose: string): Promise<string> {
  const key = await sharedSecret(deps, "challenge_key", async () => makeOpaqueToken(deps.system.random));
  return createHmac("sha256", key).update(`${body} ${purpose}`).digest("base64url");
}
