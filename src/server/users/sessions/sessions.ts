// Sessions of users: access tokens that are not stored, and refresh tokens for single use. A refresh token that is used
// twice ends its family. The signing key is sealed in the database, so that replicas share it.

import { signInMs } from "../../../api/sessions.ts";
import { AppError } from "../../../base/errors.ts";
import { systemErrorCode } from "../../../base/system-errors.ts";
import { hashToken, makeOpaqueToken } from "../../../pki/opaque.ts";
import type { TokenPair } from "../../../protocol/sign-in.ts";
import { networkOf } from "../../../base/ip.ts";
import type { ServerOptions } from "../../options.ts";
import type { Transaction } from "../../store/database.ts";
import { computed, integer, integerOrNull, joined, queryOne } from "../../store/table.ts";
import { browserSessions, refreshTokens } from "../../store/tables/sessions.ts";
import { hasIdentity } from "../../store/tables/providers.ts";
import { knownForMs, rememberNetwork } from "../../store/tables/organizations.ts";
import { type From, endFamily, hasFamilyEnded, listFamily } from "./families.ts";
import { users } from "../../store/tables/users.ts";
import { type AccessClaims, makeSigning, signedCodes } from "./signing.ts";

/** A sign-in by a provider of identities: sessions that follow from it end with it. */
export type ByProvider = { providerId: number; endsAt: number };

export type Sessions = {
  verifyAccess(token: string): Promise<AccessClaims>;
  /** Whether this server once issued the refused token. */
  wasIssued(error: unknown): boolean;
  /**
   * The first pair of tokens for a user who has just proven the password with this hash. Throws invalid_credentials if
   * the password was changed, or the user disabled, in the meantime: nothing else would end that session. `from`: for the
   * list of sessions, and later sign-ins from its network. `factorAt`: when a second factor was proven. `by`: throws
   * sign_in_expired if the identity is gone.
   */
  start(
    userId: number,
    passwordHash?: string,
    from?: From,
    proof?: { factorAt?: number | null; by?: ByProvider | undefined },
  ): Promise<TokenPair>;
  /** The next pair. Throws token_not_valid; a token that was used before ends its family. */
  refresh(token: string, from?: From): Promise<TokenPair>;
  /** Signs out: ends the token's family. */
  revoke(token: string): Promise<void>;
  /** The value of a cookie that opens only the docs pages. Checks and throws as `start`. */
  startDocs(userId: number, passwordHash: string, network: string): Promise<string>;
  verifyDocs(token: string): Promise<AccessClaims>;
  /**
   * The value of a cookie by which a device is known: it lifts throttles of this user, and gives no right. `id`: of a
   * device that is known already.
   */
  signDevice(userId: number, id?: string): Promise<string>;
  /** The device's id; undefined if the token is not valid or another user's. */
  verifyDevice(token: string, userId: number): Promise<string | undefined>;
};

/** How long a session of the docs pages lasts. */
export const docsSessionS = 8 * 3600;

/** The tokens that follow from one sign-in, and when that ends. Times are ms. */
type Chain = { family: string; endsAt: number; factorAt: number | null; providerId: number | null };

export async function makeSessions(options: ServerOptions): Promise<Sessions> {
  const { db, system } = options;
  const tokens = await makeSigning(options);
  const newId = () => makeOpaqueToken(system.random);
  /**
   * The tokens of a sign-in, or of a use of its refresh token, at `at` (ms). An access token does not outlive the sign-in. A refresh
   * token is compared with its end when it is used. `jti`: the id of the refresh token.
   */
  const pair = async (userId: number, at: number, jti: string, chain: Chain): Promise<TokenPair> => {
    const { endsAt, family } = chain;
    const leftS = Math.max(0, Math.floor((endsAt - at) / 1000));
    const { accessLifetimeS, refreshLifetimeS } = options;
    const access = { userId, lifetimeS: Math.min(accessLifetimeS, leftS), at, jti: newId(), family };
    return {
      access: await tokens.sign("access", access),
      refresh: await tokens.sign("refresh", { userId, lifetimeS: refreshLifetimeS, at, jti }),
    };
  };
  const storeRefresh = makeRefreshStore(options);

  return {
    verifyAccess: (token) => tokens.verify(token, "access"),
    wasIssued: (error) =>
      error instanceof AppError && signedCodes.includes(systemErrorCode(error.details.cause) ?? ""),
    async start(userId, passwordHash, from, { factorAt = null, by } = {}) {
      const jti = newId();
      const { at, chain } = await db.writeFor({ user: userId }, async (tx) => {
        const now = system.now();
        const startedAt = await admit(tx, { userId, passwordHash, providerId: by?.providerId }, now);
        if (from !== undefined) await rememberNetwork(tx, { userId, network: networkOf(from.address), now });
        const { providerId, endsAt: providerEndsAt } = by ?? { providerId: null, endsAt: Infinity };
        const endsAt = Math.min(startedAt + signInMs, providerEndsAt);
        const begun = { family: newId(), endsAt, factorAt, providerId };
        await storeRefresh(tx, { userId, at: startedAt, jti }, begun, from);
        return { at: startedAt, chain: begun };
      });
      return pair(userId, at, jti, chain);
    },
    async refresh(token, from) {
      const { userId, jti } = await tokens.verify(token, "refresh");
      const nextJti = newId();
      const used = await db.writeFor({ user: userId }, async (tx) => {
        const current = await useRefreshToken(tx, hashToken(jti), system.now());
        if (current !== undefined)
          await storeRefresh(tx, { userId, at: current.at, jti: nextJti }, current.chain, from);
        return current;
      });
      if (used === undefined) throw new AppError("token_not_valid", "The token is not valid any more.");
      return pair(userId, used.at, nextJti, used.chain);
    },
    async revoke(token) {
      const { userId, jti } = await tokens.verify(token, "refresh");
      await db.writeFor({ user: userId }, async (tx) => {
        const known = await refreshTokens.find(tx, { jtiHash: hashToken(jti) });
        if (known !== undefined) await endFamily(tx, known.family, system.now());
      });
    },
    async startDocs(userId, passwordHash, network) {
      const at = await db.writeFor({ user: userId }, async (tx) => {
        const now = system.now();
        await rememberNetwork(tx, { userId, network, now });
        return admit(tx, { userId, passwordHash }, now);
      });
      return tokens.sign("docs", { userId, lifetimeS: docsSessionS, at, jti: newId() });
    },
    verifyDocs: (token) => tokens.verify(token, "docs"),
    signDevice: (userId, jti = newId()) =>
      tokens.sign("device", { userId, lifetimeS: knownForMs / 1000, at: system.now(), jti }),
    async verifyDevice(token, userId) {
      const device = await tokens.verify(token, "device").catch(() => undefined);
      return device?.userId === userId ? device.jti : undefined;
    },
  };
}

/** Stores a refresh token, and the session in the list of its user. `at`: of the sign-in or use. */
const makeRefreshStore =
  ({ system, refreshLifetimeS }: Pick<ServerOptions, "system" | "refreshLifetimeS">) =>
  async (
    tx: Transaction,
    { userId, at, jti }: { userId: number; at: number; jti: string },
    chain: Chain,
    from?: From,
  ): Promise<void> => {
    const expiresAt = system.now() + refreshLifetimeS * 1000;
    await refreshTokens.insert(tx, { jtiHash: hashToken(jti), userId, expiresAt, ...chain });
    await listFamily(tx, { userId, at, ...chain, endsAt: Math.min(expiresAt, chain.endsAt) }, from);
  };

/** Throws sign_in_expired. */
async function requireIdentity(tx: Transaction, at: { userId: number; providerId: number }): Promise<void> {
  if (await hasIdentity(tx, at)) return;
  throw new AppError("sign_in_expired", "The identity by which this sign-in began is gone.", {
    hint: "Sign in again.",
  });
}

/** The same error for an unknown address, a wrong password and a disabled user. */
export function wrongCredentials(): AppError {
  return new AppError("invalid_credentials", "No active user has this email address and password.");
}

/** Sessions that began before `sessionsFrom` (ms) have ended. */
const sessionsFromPick = users.pick("sessionsFrom");

type SigningIn = {
  userId: number;
  passwordHash?: string | undefined;
  providerId?: number | null | undefined;
};

/**
 * Records the sign-in, unless the user is disabled, the password has changed, or the user is bound to an organization and
 * this is not by its provider, or the identity at the provider is gone. Every session begins here. Returns its time, see
 * `sessionTime`.
 */
export async function admit(tx: Transaction, { userId, passwordHash, providerId }: SigningIn, now: number) {
  const user = await queryOne(
    tx,
    sessionsFromPick,
    `UPDATE users SET last_login_at = $2
     WHERE id = $1 AND is_active = 1 AND password_hash = coalesce($3, password_hash)
     AND (bound_org_id IS NULL OR bound_org_id = (SELECT org_id FROM identity_providers WHERE id = $4))
     RETURNING ${sessionsFromPick.select()}`,
    [userId, now, passwordHash ?? null, providerId ?? null],
  );
  if (user === undefined) throw wrongCredentials();
  if (providerId != null) await requireIdentity(tx, { userId, providerId });
  return sessionTime(user, now);
}

/** Now, in ms, but after `sessionsFrom`, which may be this very millisecond or come from a clock that is ahead. */
function sessionTime({ sessionsFrom }: { sessionsFrom: number }, now: number): number {
  return Math.max(now, sessionsFrom + 1);
}

const tokenWithUser = joined(
  "t",
  refreshTokens.pick("family", "endsAt", "factorAt", "providerId"),
  "u",
  users.pick("isActive", "sessionsFrom"),
);

/**
 * Marks the token as used. Undefined if it is not valid any more; a second use, or a disabled user, also revokes the family. A chain
 * of the release before has no end; it gets one here, with its first use. `at` of the result: of the next tokens. Throws
 * token_not_valid after the end of the sign-in.
 */
async function useRefreshToken(
  tx: Transaction,
  jtiHash: string,
  now: number,
): Promise<{ chain: Chain; at: number } | undefined> {
  const token = await queryOne(
    tx,
    tokenWithUser,
    `SELECT ${tokenWithUser.select()}
     FROM refresh_tokens t JOIN users u ON u.id = t.user_id WHERE t.jti_hash = $1`,
    [jtiHash],
  );
  if (token === undefined || (await hasFamilyEnded(tx, token.family))) return undefined;
  const { family, endsAt, factorAt, providerId } = token;
  const chain = { family, endsAt: endsAt ?? now + signInMs, factorAt, providerId };
  // `used_at IS NULL` decides between two requests with the same token.
  const used = await refreshTokens.update(tx, { jtiHash, usedAt: null }, { usedAt: now });
  if (used === 1 && token.isActive) {
    if (chain.endsAt <= now) throw signInEnded(chain);
    return { chain, at: sessionTime(token, now) };
  }
  await endFamily(tx, family, now);
  return undefined;
}

function signInEnded({ providerId }: Chain): AppError {
  const days = signInMs / 86_400_000;
  if (providerId !== null)
    return new AppError(
      "token_not_valid",
      "A sign-in by a provider of identities lasts a day. Sign in again.",
    );
  return new AppError("token_not_valid", `This session ended ${days} days after its sign-in. Sign in again.`);
}

/** When tokens of the user were signed last, ms. */
const lastSigned = computed({
  sessionsFrom: integer(),
  lastLoginAt: integerOrNull(),
  refreshedAt: integerOrNull(),
});

/** Ends all sessions of a user, after a new password or when the user is disabled. */
export async function endSessions(tx: Transaction, userId: number, now: number): Promise<void> {
  const signed = await queryOne(
    tx,
    lastSigned,
    `SELECT sessions_from, last_login_at, (SELECT max(used_at) FROM refresh_tokens WHERE user_id = $1) AS refreshed_at
     FROM users WHERE id = $1`,
    [userId],
  );
  // Later than every token that was signed, also within this millisecond or by a clock that was ahead.
  const sessionsFrom = Math.max(now, ...Object.values(signed ?? {}).map((at) => (at ?? 0) + 1));
  await users.update(tx, { id: userId }, { sessionsFrom });
  await refreshTokens.update(tx, { userId, revokedAt: null }, { revokedAt: now });
  await browserSessions.delete(tx, { userId });
  await tx.notify("auth", `user ${userId}`);
}
