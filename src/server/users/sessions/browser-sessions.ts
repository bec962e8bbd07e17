// Sessions of browsers: a row for each (user-sessions.ts lists and ends them). Reads ask the database each time,
// so an end counts at once on all replicas.

import { AppError } from "../../../base/errors.ts";
import { brand } from "../../../brand.ts";
import { hashToken, makeOpaqueToken } from "../../../pki/opaque.ts";
import { networkOf } from "../../../base/ip.ts";
import type { AskedRequest, Call, UserCaller } from "../../http/route.ts";
import type { Store } from "../../options.ts";
import type { Database, Reader } from "../../store/database.ts";
import { joined, queryOne } from "../../store/table.ts";
import { browserSessions } from "../../store/tables/sessions.ts";
import { byProviderMs, idleMs, longestMs } from "../../../api/sessions.ts";
import { rememberNetwork } from "../../store/tables/organizations.ts";
import { isStaff, users, type UserRow } from "../../store/tables/users.ts";
import { deviceOf } from "./families.ts";
import { admit, type ByProvider } from "./sessions.ts";

/** A session is new for so long after its sign-in. */
const newMs = 10 * 60_000;
/** Sessions of browsers of one user. Beyond it, the oldest end. */
const maxOfUser = 50;
/** A use is recorded at most this often, so that reads seldom write. */
const usedEveryMs = 60_000;

/**
 * Begins a session and returns the cookie's value, always a new one. `former`: the session of this browser until now,
 * which ends. `passwordHash`: the one that the typed password was compared with; the sign-in fails if the user has another one
 * now. `factorAt`: when it proved a second factor, ms; null: it did not. Throws invalid_credentials like a sign-in for tokens.
 */
export async function startSession(
  { db, system }: Store,
  { userId, passwordHash }: { userId: number; passwordHash?: string | undefined },
  {
    address,
    request,
    former,
    factorAt,
    providerId = null,
  }: {
    address: string;
    request: AskedRequest;
    former: string | undefined;
    factorAt: number | null;
    providerId?: number | null;
  },
): Promise<{ token: string; endsAt: number }> {
  const token = makeOpaqueToken(system.random);
  const device = deviceOf(request);
  const endsAt = await db.writeFor({ user: userId }, async (tx) => {
    const now = system.now();
    // Now, or a little later if all sessions of the user ended just now: this one must count as begun after that.
    const at = await admit(tx, { userId, passwordHash, providerId }, now);
    await rememberNetwork(tx, { userId, network: networkOf(address), now });
    if (former !== undefined) await browserSessions.delete(tx, { tokenHash: hashToken(former) });
    const longest = providerId === null ? longestMs : byProviderMs;
    const times = { createdAt: at, lastUsedAt: at, endsAt: at + longest, factorAt };
    const row = { userId, tokenHash: hashToken(token), device, address, providerId, ...times };
    await browserSessions.insert(tx, row);
    await tx.run(
      `DELETE FROM browser_sessions WHERE user_id = $1 AND family IS NULL AND id NOT IN (
         SELECT id FROM browser_sessions WHERE user_id = $1 AND family IS NULL ORDER BY id DESC LIMIT ${maxOfUser})`,
      [userId],
    );
    return times.endsAt;
  });
  return { token, endsAt };
}

/**
 * SQL condition: the session `s` of the user `u` has not ended. $2: now, ms. `family` is null for browsers alone. Only a browser's
 * session ends when it is idle: the tokens of a command line have ends of their own.
 */
export const isLive = `s.ends_at > $2 AND (s.family IS NOT NULL OR s.last_used_at > $2 - ${idleMs}) AND u.is_active = 1 AND s.created_at > u.sessions_from`;
const livePick = joined(
  "u",
  users.pick("email", "isStaff", "boundOrgId"),
  "s",
  browserSessions.pick("id", "userId", "lastUsedAt"),
);
const findLive = `SELECT ${livePick.select()} FROM browser_sessions s JOIN users u ON u.id = s.user_id
  WHERE s.token_hash = $1 AND s.family IS NULL AND ${isLive}`;

/** The user of a session that has not ended. Records the use, unless `isUse` is false. */
export async function findSession(
  db: Database,
  token: string,
  { now, address, isUse = true }: { now: number; address: string; isUse?: boolean },
): Promise<UserCaller | undefined> {
  const session = await queryOne(db, livePick, findLive, [hashToken(token), now]);
  if (session === undefined) return undefined;
  const { id, userId, email, lastUsedAt } = session;
  if (isUse && lastUsedAt <= now - usedEveryMs) {
    await db.writeFor({ user: userId }, (tx) =>
      browserSessions.update(tx, { id }, { lastUsedAt: now, address }),
    );
  }
  return { kind: "person", userId, email, isStaff: isStaff(session), signIn: { session: id } };
}

/** The id of the browser's session; undefined if the caller has a token. */
export function sessionIdOf({ signIn }: UserCaller): number | undefined {
  return signIn !== undefined && "session" in signIn ? signIn.session : undefined;
}

/** The user who calls. Throws permission_denied for nodes, service tokens and the operator. */
export function callingUser({ caller }: Pick<Call, "caller">): UserCaller {
  if (caller.kind === "person") return caller;
  throw new AppError("permission_denied", "Only a signed-in user may call this.", {
    hint: `It concerns your own sign-in: use \`${brand.executable} login\` first, or a browser.`,
  });
}

/**
 * The user who calls with a browser's session. A stolen token must not add machines or make further tokens: it would live on in
 * them. Throws permission_denied with the sentence.
 */
export function browserOf(call: Pick<Call, "caller">, sentence: string): UserCaller {
  const caller = callingUser(call);
  if (sessionIdOf(caller) !== undefined) return caller;
  throw new AppError("permission_denied", sentence);
}

/**
 * The provider by which the browser's session began, and the end of the session. Undefined without a provider. Throws
 * not_authenticated if the session has ended.
 */
export async function providerOf(reader: Reader, caller: UserCaller): Promise<ByProvider | undefined> {
  const id = sessionIdOf(caller);
  const session = id === undefined ? undefined : await browserSessions.find(reader, { id });
  if (session === undefined)
    throw new AppError("not_authenticated", "This session has ended. Sign in again.");
  const { providerId, endsAt } = session;
  return providerId === null ? undefined : { providerId, endsAt };
}

/**
 * The user whom a browser signed in, for a session that begins by its word. Undefined if since `at` (ms) the user was disabled
 * or all sessions ended, for example by a new password, or if the browser's own session has ended. `sessionId` null: not known.
 */
export async function stillSignedIn(
  reader: Reader,
  { userId, at, sessionId }: { userId: number; at: number; sessionId: number | null },
): Promise<UserRow | undefined> {
  const user = await users.find(reader, { id: userId, isActive: true });
  if (user === undefined || user.sessionsFrom >= at) return undefined;
  if (sessionId !== null && (await browserSessions.find(reader, { id: sessionId, userId })) === undefined)
    return undefined;
  return user;
}

/** Throws permission_denied unless the browser signed in within 10 minutes. */
export async function requireNewSession(reader: Reader, id: number | undefined, now: number): Promise<void> {
  const session = id === undefined ? undefined : await browserSessions.find(reader, { id });
  if (session !== undefined && session.createdAt > now - newMs) return;
  throw new AppError("permission_denied", "This needs a sign-in within the last 10 minutes.", {
    hint: "Sign out in this browser, sign in, and try again.",
  });
}
