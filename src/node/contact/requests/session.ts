// Signs in, and gives the access token of a profile. Only one process at a time exchanges a refresh token: a second use
// ends the session.

import { given } from "../../../base/given.ts";
import { join } from "node:path";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { makeDirectory } from "../../../base/files.ts";
import { quoteWord } from "../../../base/plan.ts";
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

type Edge = Pick<System, "run" | "env" | "platform" | "executable" | "isRoot" | "fetch" | "sleep" | "now">;

/** A token is not used in its last seconds: the request takes time. */
const marginMs = 30_000;

/** A session from a pair of tokens. The server's clock may differ from this one: only the lifetime counts. */
export function sessionOf({ access, refresh }: TokenPair, now: number): Session {
  return { access, refresh, until: now + lifetimeMs(access) };
}

/** From the payload, which is not verified: the server does that. 0 if there is none. */
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

/** The token for the next requests. `refused`: an access token that the server no longer accepts. `renewed` gets a new one. */
export async function profileToken(
  name: string,
  profile: Profile,
  system: Edge,
  {
    refused,
    renewed = async () => undefined,
  }: { refused?: string; renewed?: (access: string) => Promise<void> } = {},
): Promise<string> {
  const usable = (session: Session) => {
    if ("token" in session) return session.token;
    const isOver = session.until - marginMs <= system.now() || session.access === refused;
    return isOver ? undefined : session.access;
  };
  const known = usable(await requireSession(name, profile, system));
  if (known !== undefined && known !== refused) return known;
  const directory = profilesPlace(system);
  makeDirectory(directory, 0o700);
  const path = join(directory, "lock");
  let made: string | undefined;
  const work = async () => {
    // Another process may have exchanged it meanwhile.
    const session = await requireSession(name, profile, system);
    const present = usable(session);
    if (present !== undefined && present !== refused) return present;
    if ("token" in session) throw signInAgain(name);
    const next = sessionOf(await exchange(name, profile, session.refresh, system), system.now());
    await writeSession(name, profile, next, system);
    made = "access" in next ? next.access : undefined;
    return made ?? "";
  };
  const token = await withLock(directory, `${brand.executable} admin`, system, work, {
    path,
    doing: "renewing the session of this user",
  });
  if (made !== undefined) await renewed(made);
  return token;
}

async function exchange(name: string, profile: Profile, refresh: string, system: Edge): Promise<TokenPair> {
  try {
    return await clientOf(profile, system).refresh(refresh);
  } catch (error) {
    if (error instanceof AppError && error.code === "token_not_valid") throw signInAgain(name);
    throw error;
  }
}

async function requireSession(name: string, profile: Profile, system: Edge): Promise<Session> {
  const session = await readSession(name, profile, system);
  if (session === undefined) throw signInAgain(name);
  return session;
}

function signInAgain(name: string): AppError {
  return new AppError("credentials_missing", `The session of the profile ${name} has ended`, {
    hint: `Sign in again: \`${brand.executable} login --profile ${quoteWord(name)}\`.`,
  });
}
