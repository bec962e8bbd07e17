// Signed-in people: access tokens that nobody stores, refresh tokens that are good for one use, and the family that
// ends when one is used twice. The signing key lies sealed in the database, so that replicas share it.

import { AppError, systemErrorCode } from "../../errors.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import { openSecret, sealSecret } from "../../pki/secrets.ts";
import type { TokenSigner, TokenType } from "../../pki/tokens.ts";
import type { TokenPair } from "../../protocol.ts";
import { parse } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import {
  numberOf,
  numberOrNull,
  textOf,
  type Database,
  type Row,
  type Transaction,
} from "../store/database.ts";

/** What an access token says; issuedAt in ms. */
type AccessClaims = { userId: number; issuedAt: number };

export type Sessions = {
  verifyAccess(token: string): Promise<AccessClaims>;
  /** Whether a refused token was really issued by us once. */
  wasIssued(error: unknown): boolean;
  /**
   * A first pair of tokens for somebody who has just proven who they are, by the password of this hash. Throws
   * invalid_credentials where that was changed, or the account disabled, in the meantime: nothing would end the session.
   */
  start(userId: number, passwordHash?: string): Promise<TokenPair>;
  /** The next pair. Throws token_not_valid; a token used before ends its whole family. */
  refresh(token: string): Promise<TokenPair>;
  /** Signs out: the token's family ends. Says nothing of tokens that are not valid. */
  revoke(token: string): Promise<void>;
  /** A cookie's value for the docs pages: opens nothing else. For whom, and throws, as `start`. */
  startDocs(userId: number, passwordHash: string, lifetimeS: number): Promise<string>;
  verifyDocs(token: string): Promise<AccessClaims>;
};

const keyName = "jwt_key";

export async function makeSessions(options: ServerOptions): Promise<Sessions> {
  const { db, system } = options;
  const key = await readKey(options);
  let opened: Promise<TokenSigner> | undefined;
  // With the first token, not with the start: a server that has to be back fast needs no jose for it.
  const signer = () => (opened ??= openSigner(key));
  const newId = () => makeOpaqueToken(system.random);

  /** `at` is the time of the transaction that let the person in, not of the signing: what ends sessions may be between. */
  const sign = async (type: TokenType, userId: number, lifetimeS: number, at: number, jti = newId()) =>
    (await signer()).sign({
      token_type: type,
      user_id: String(userId),
      jti,
      iat: at / 1000,
      exp: Math.floor(at / 1000) + lifetimeS,
    });
  const verify = async (token: string, type: TokenType): Promise<AccessClaims & { jti: string }> => {
    const claims = await (await signer()).verify(token, type, system.now());
    // A fraction of a second in binary is not quite the milliseconds that were meant.
    return { userId: Number(claims.user_id), issuedAt: Math.round(claims.iat * 1000), jti: claims.jti };
  };
  const pair = async (userId: number, at: number, jti: string): Promise<TokenPair> => ({
    access: await sign("access", userId, options.accessLifetimeS, at),
    refresh: await sign("refresh", userId, options.refreshLifetimeS, at, jti),
  });
  /** Lets in, unless the password is another by now, and says when. */
  const letIn = async (tx: Transaction, userId: number, passwordHash: string | null) => {
    const user = await tx.get(
      `UPDATE users SET last_login_at = $2
       WHERE id = $1 AND is_active = 1 AND password_hash = coalesce($3, password_hash) RETURNING sessions_from`,
      [userId, system.now(), passwordHash],
    );
    if (user === undefined) throw wrongCredentials();
    return afterTheEnd(user, system.now());
  };
  const remember = (tx: Transaction, userId: number, family: string, jti: string) =>
    tx.run("INSERT INTO refresh_tokens (jti_hash, family, user_id, expires_at) VALUES ($1, $2, $3, $4)", [
      hashToken(jti),
      family,
      userId,
      system.now() + options.refreshLifetimeS * 1000,
    ]);

  return {
    verifyAccess: (token) => verify(token, "access"),
    wasIssued: (error) =>
      error instanceof AppError && signedAllTheSame.includes(systemErrorCode(error.details.cause) ?? ""),
    async start(userId, passwordHash) {
      const jti = newId();
      const at = await db.write(async (tx) => {
        await tx.run("DELETE FROM refresh_tokens WHERE expires_at < $1", [system.now()]);
        const begun = await letIn(tx, userId, passwordHash ?? null);
        await remember(tx, userId, newId(), jti);
        return begun;
      });
      return pair(userId, at, jti);
    },
    async refresh(token) {
      const { userId, jti } = await verify(token, "refresh");
      const next = newId();
      const good = await db.write(async (tx) => {
        const spent = await spend(tx, hashToken(jti), system.now());
        if (spent !== undefined) await remember(tx, userId, spent.family, next);
        return spent;
      });
      if (good === undefined) throw new AppError("token_not_valid", "The token is not valid any more.");
      return pair(userId, good.at, next);
    },
    async revoke(token) {
      const { jti } = await verify(token, "refresh");
      await db.write((tx) =>
        tx.run(
          `UPDATE refresh_tokens SET revoked_at = $2 WHERE revoked_at IS NULL
           AND family = (SELECT family FROM refresh_tokens WHERE jti_hash = $1)`,
          [hashToken(jti), system.now()],
        ),
      );
    },
    async startDocs(userId, passwordHash, lifetimeS) {
      const at = await db.write((tx) => letIn(tx, userId, passwordHash));
      return sign("docs", userId, lifetimeS, at);
    },
    verifyDocs: (token) => verify(token, "docs"),
  };
}

/** What jose finds wrong only after the signature was right. */
const signedAllTheSame = ["ERR_JWT_EXPIRED", "ERR_JWT_CLAIM_VALIDATION_FAILED"];

/** One and the same for unknown, wrong and disabled. */
export function wrongCredentials(): AppError {
  return new AppError("invalid_credentials", "No active account found with the given credentials.");
}

/** Now, in ms; later where sessions_from is of this very millisecond, or of a clock that goes ahead. */
function afterTheEnd(user: Row, now: number): number {
  return Math.max(now, numberOf(user, "sessions_from") + 1);
}

/** Uses the token up: its family, and when. One that was used before, or whose owner is gone, ends the family. */
async function spend(
  tx: Transaction,
  jtiHash: string,
  now: number,
): Promise<{ family: string; at: number } | undefined> {
  const row = await tx.get(
    `SELECT t.family, t.used_at, t.revoked_at, u.is_active, u.sessions_from
     FROM refresh_tokens t JOIN users u ON u.id = t.user_id WHERE t.jti_hash = $1`,
    [jtiHash],
  );
  if (row === undefined || numberOrNull(row, "revoked_at") !== null) return undefined;
  const family = textOf(row, "family");
  // The condition on used_at decides between two that come at once.
  const spent = await tx.run(
    "UPDATE refresh_tokens SET used_at = $2 WHERE jti_hash = $1 AND used_at IS NULL",
    [jtiHash, now],
  );
  if (spent === 1 && numberOf(row, "is_active") === 1) return { family, at: afterTheEnd(row, now) };
  await tx.run("UPDATE refresh_tokens SET revoked_at = $2 WHERE family = $1 AND revoked_at IS NULL", [
    family,
    now,
  ]);
  return undefined;
}

/** Ends everything that a person holds: after a new password, or when they are disabled. */
export async function endSessions(tx: Transaction, userId: number, now: number): Promise<void> {
  // After all that was ever signed, also within the same millisecond, or by a clock that was ahead.
  const user = await tx.get(
    `SELECT sessions_from, last_login_at, (SELECT max(used_at) FROM refresh_tokens WHERE user_id = $1) AS refreshed_at
     FROM users WHERE id = $1`,
    [userId],
  );
  const signed = ["sessions_from", "last_login_at", "refreshed_at"].map(
    (column) => numberOrNull(user ?? {}, column) ?? 0,
  );
  const from = Math.max(now, ...signed.map((at) => at + 1));
  await tx.run("UPDATE users SET sessions_from = $2 WHERE id = $1", [userId, from]);
  await tx.run("UPDATE refresh_tokens SET revoked_at = $2 WHERE user_id = $1 AND revoked_at IS NULL", [
    userId,
    now,
  ]);
  await tx.notify("auth", `user ${userId}`);
}

async function openSigner(key: string): Promise<TokenSigner> {
  const { SigningKey, makeTokenSigner } = await import("../../pki/tokens.ts");
  return makeTokenSigner(parse(SigningKey, JSON.parse(key)));
}

/** The JWK as text, made by whichever replica comes first. Throws bad_configuration where the secret key is another. */
async function readKey({ db, system, secretKey }: ServerOptions): Promise<string> {
  const find = async (reader: Pick<Database, "get">) => {
    const row = await reader.get("SELECT value FROM meta WHERE key = $1", [keyName]);
    return row === undefined ? undefined : openSecret(secretKey, textOf(row, "value"), keyName);
  };
  const known = await find(db);
  if (known !== undefined) return known;
  const { makeSigningKey } = await import("../../pki/tokens.ts");
  const fresh = JSON.stringify(await makeSigningKey(makeOpaqueToken(system.random).slice(0, 16)));
  return db.write(async (tx) => {
    await tx.run("INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING", [
      keyName,
      sealSecret(secretKey, fresh, keyName),
    ]);
    return (await find(tx)) ?? fresh;
  });
}
