// Gives the access token of a profile (`agent login`), and renews it. Only one process at a time exchanges a refresh token: a
// second use ends the session.

import { given } from "../../../base/given.ts";
import { join } from "node:path";
import { brand } from "../../../brand.ts";
import { AppError, hasCode } from "../../../base/errors.ts";
import { makeDirectory } from "../../../base/files.ts";
import { quoteWord } from "../../../base/quote.ts";
import type { TokenPair } from "../../../protocol/sign-in.ts";
import type { System } from "../../../base/system.ts";
import { withLock } from "../../files/lock.ts";
import {
  profilesPlace,
  readSession,
  writeSession,
  type Profile,
  type Session,
} from "../../files/profiles.ts";
import { makeClient } from "./client.ts";

type UsedSystem = Pick<
  System,
  "run" | "env" | "platform" | "executable" | "isRoot" | "fetch" | "sleep" | "now"
>;

/** A token is not used in its last seconds: the request takes time. */
const marginMs = 30_000;

/** A session from a pair of tokens. The server's clock may differ from this one, so `until` is counted from now on. */
export function sessionOf({ access, refresh }: TokenPair, nowMs: number) {
  return { access, refresh, until: nowMs + lifetimeMs(access) };
}

/** Read from the payload without verification, which the server does. 0 if there is none. */
function lifetimeMs(jwt: string): number {
  try {
    const claims: unknown = JSON.parse(Buffer.from(jwt.split(".")[1] ?? "", "base64url").toString());
    if (typeof claims !== "object" || claims === null || !("exp" in claims) || !("iat" in claims)) return 0;
    return Math.max(0, (Number(claims.exp) - Number(claims.iat)) * 1000) || 0;
  } catch {
    return 0;
  }
}

export function clientOf(profile: Profile, system: Pick<System, "fetch" | "sleep">, token?: string) {
  return makeClient({
    base: profile.api_base,
    allowPlainHttp: profile.allow_plain_http,
    system,
    ...given({ ca: profile.api_ca, token }),
  });
}

/** `refused`: an access token that the server no longer accepts. `onRenewed` is called with each new one. */
type Renewal = { refused?: string; onRenewed?: (access: string) => Promise<void> };

/** The token for the next requests. Throws credentials_missing if the user must sign in again. */
export async function profileToken(
  name: string,
  profile: Profile,
  system: UsedSystem,
  { refused, onRenewed }: Renewal,
): Promise<string> {
  const usable = usableToken(await requireSession(name, profile, system), refused, system.now());
  if (usable !== undefined) return usable;
  const directory = profilesPlace(system);
  makeDirectory(directory, 0o700);
  const renew = async () => {
    const session = await requireSession(name, profile, system);
    // Another process may have renewed the session in the meantime.
    const renewedToken = usableToken(session, refused, system.now());
    if (renewedToken !== undefined) return { token: renewedToken, isNew: false };
    // A service token is not renewed.
    if ("token" in session) throw signInAgain(name);
    const next = sessionOf(await exchange(name, profile, session.refresh, system), system.now());
    await writeSession(name, profile, next, system);
    return { token: next.access, isNew: true };
  };
  const { token, isNew } = await withLock(directory, `${brand.executable} admin`, system, renew, {
    path: join(directory, "lock"),
    doing: "renewing the session of this user",
  });
  if (isNew) await onRenewed?.(token);
  return token;
}

/** The token of a session if requests may use it now. When a service token ends is not known here. */
function usableToken(session: Session, refused: string | undefined, now: number): string | undefined {
  const token = "token" in session ? session.token : session.access;
  const isOver = "until" in session && session.until - marginMs <= now;
  return isOver || token === refused ? undefined : token;
}

async function exchange(
  name: string,
  profile: Profile,
  refresh: string,
  system: UsedSystem,
): Promise<TokenPair> {
  try {
    return await clientOf(profile, system).refresh(refresh);
  } catch (error) {
    if (hasCode(error, "token_not_valid")) throw signInAgain(name);
    throw error;
  }
}

async function requireSession(name: string, profile: Profile, system: UsedSystem): Promise<Session> {
  const session = await readSession(name, profile, system);
  if (session === undefined) throw signInAgain(name);
  return session;
}

function signInAgain(name: string): AppError {
  return new AppError("credentials_missing", `The session of the profile ${name} has ended`, {
    hint: `Sign in again: \`${brand.executable} login --profile ${quoteWord(name)}\`.`,
  });
}
