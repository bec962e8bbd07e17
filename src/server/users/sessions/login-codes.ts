// Codes that a browser takes to the command line on its own machine (RFC 8252, with PKCE). A code is sealed, not stored: it
// names the user, ends after a minute, and counts once, for the process that knows the verifier.

import { given } from "../../../base/given.ts";
import { createHash, timingSafeEqual } from "node:crypto";
import * as v from "valibot";
import { Challenge } from "../../../api/command-line.ts";
import { AppError } from "../../../base/errors.ts";
import { makeOpaqueToken } from "../../../pki/opaque.ts";
import { openSecret, sealSecret } from "../../../pki/secrets.ts";
import type { TokenPair } from "../../../protocol/sign-in.ts";
import type { ServerOptions } from "../../options.ts";
import { useOnce } from "../../store/tables/users.ts";
import { providerOf, sessionIdOf, stillSignedIn } from "./browser-sessions.ts";
import type { UserCaller } from "../../http/route.ts";
import type { From } from "./families.ts";
import type { Sessions } from "./sessions.ts";

type Deps = Pick<ServerOptions, "db" | "system" | "secretKey"> & { sessions: Pick<Sessions, "start"> };

const lifetimeMs = 60_000;
const context = "login code";
const Content = v.object({
  userId: v.number(),
  /** The hash of the verifier, which the process on the machine keeps. */
  challenge: Challenge,
  /** When the code was made, ms. */
  at: v.number(),
  /**
   * The id under which the use is stored: the code's text has more than one form. Codes of the release before have
   * none.
   */
  nonce: v.optional(v.string()),
  /** The id of the browser's session. Codes of the release before have none. */
  session: v.optional(v.number()),
  /** The provider by which the browser's session began. */
  by: v.optional(v.object({ providerId: v.number(), endsAt: v.number() })),
});

/** The code for the page to pass on to the command line. */
export async function makeLoginCode(
  { db, system, secretKey }: Pick<Deps, "db" | "system" | "secretKey">,
  caller: UserCaller,
  challenge: string,
): Promise<string> {
  const by = await providerOf(db, caller);
  const session = sessionIdOf(caller);
  const content: v.InferOutput<typeof Content> = {
    userId: caller.userId,
    challenge,
    at: system.now(),
    nonce: makeOpaqueToken(system.random),
    ...given({ session, by }),
  };
  return sealSecret(secretKey, JSON.stringify(content), context);
}

/** Throws sign_in_expired for a code that is made up, too old, used, or another process's. */
export async function useLoginCode(
  { db, system, secretKey, sessions }: Deps,
  { code, verifier }: { code: string; verifier: string },
  from: From,
): Promise<TokenPair> {
  const { userId, challenge, at, nonce = challenge, session, by } = open(secretKey, code);
  const hashedVerifier = createHash("sha256").update(verifier).digest("base64url");
  const now = system.now();
  if (at + lifetimeMs <= now || !timingSafeEqual(Buffer.from(hashedVerifier), Buffer.from(challenge)))
    throw expired();
  const isFirst = await db.writeFor("rows", (tx) => useOnce(tx, `login ${nonce}`, at + lifetimeMs));
  // The code ends with the browser's session, for example when the user leaves the provider.
  const user = await stillSignedIn(db, { userId, at, sessionId: session ?? null });
  if (!isFirst || user === undefined) throw expired();
  return sessions.start(userId, user.passwordHash, from, { by });
}

function open(secretKey: Deps["secretKey"], code: string): v.InferOutput<typeof Content> {
  try {
    return v.parse(Content, JSON.parse(openSecret(secretKey, code, context)));
  } catch {
    throw expired();
  }
}

function expired(): AppError {
  return new AppError("sign_in_expired", "This sign-in is over.", { hint: "Start the command again." });
}
