// Signs in, and gives the access token of a profile. Only one process at a time exchanges a refresh token: a second use
// ends the session.

import { given } from "../../../base/given.ts";
import { join } from "node:path";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
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

/** A session from a pair of tokens. The server's clock may differ from this one: only the lifetime counts. */
export function sessionOf({ access, refresh }: TokenPair, now: number) {
  return { access, refresh, until: now + lifetimeMs(access) };
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

type Renewal = { refused?: string; renewed?: (access: string) => Promise<void> };

/** The token for the next requests. `refused`: an access token that the server no longer accepts. `renewed` gets a new one. */
export async function profileToken(
  name: string,
  profile: Profile,
  system: UsedSystem,
  { refused, renewed }: Renewal = {},
): Promise<string> {
  const present = usableToken(await requireSession(name, profile, system), refused, system.now());
  if (present !== undefined) return present;
  const directory = profilesPlace(system);
  makeDirectory(directory, 0o700);
  const renew = async () => {
    const session = await requireSession(name, profile, system);
    // Another process may have renewed the session in the meantime.
    const known = usableToken(session, refused, system.now());
    if (known !== undefined) return { token: known, isNew: false };
    if ("token" in session) throw signInAgain(name);
    const next = sessionOf(await exchange(name, profile, session.refresh, system), system.now());
    await writeSession(name, profile, next, system);
    return { token: next.access, isNew: true };
  };
  const { token, isNew } = await withLock(directory, `${brand.executable} admin`, system, renew, {
    path: join(directory, "lock"),
    doing: "renewing the session of this user",
  });
  if (isNew) await renewed?.(token);
  return token;
}

/** The token of a session that requests may use now. A service token has no end that is known here. */
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
    if (error instanceof AppError && error.code === "token_not_valid") throw signInAgain(name);
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
