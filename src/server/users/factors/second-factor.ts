// Second factors at sign-in and for a fresh proof: codes of an authenticator app, and recovery codes. Codes are
// checked and counted in one transaction of the user, so that parallel guesses on any replica cannot pass the limit.

import { AppError } from "../../../base/errors.ts";
import { hashToken } from "../../../pki/opaque.ts";
import { openSecret, type SecretKeys } from "../../../pki/secrets.ts";
import { matchingStep } from "../../../pki/totp.ts";
import type { SecondFactorMethod } from "../../../protocol/sign-in.ts";
import type { ServerOptions } from "../../options.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import { computed, integer, integerOrNull, queryOne } from "../../store/table.ts";
import { recoveryCodes, totpSecrets, wrongCodes, wrongCodesKeptMs, users } from "../../store/tables/users.ts";
import { recordFailedLogin } from "../sign-in/failed-sign-ins.ts";
import type { Turn } from "../sign-in/password-queue.ts";

export type FactorServices = Pick<ServerOptions, "db" | "system" | "secretKey" | "clock">;

/** Wrong codes of one user that are allowed: from one place (a network or a sign-in), and from everywhere. */
const fromPlace = { times: 5, withinMs: 10 * 60_000 };
const fromEverywhere = { times: 20, withinMs: wrongCodesKeptMs };
/** Clocks of replicas differ by less. Later stored times come from a wall clock that was set back since. */
export const aheadMs = 60_000;

export const totpContext = (userId: number) => `totp/${userId}`;

/** As users type them: any case, with spaces and dashes. */
export const hashRecoveryCode = (code: string) => hashToken(code.toLowerCase().replaceAll(/[\s-]/g, ""));

const counts = computed({ totp: integer(), codes: integer(), keys: integer() });
const countFactors = `SELECT
  (SELECT count(*) FROM totp_secrets WHERE user_id = $1 AND confirmed_at IS NOT NULL) AS totp,
  (SELECT count(*) FROM passkeys WHERE user_id = $1) AS keys,
  (SELECT count(*) FROM recovery_codes WHERE user_id = $1 AND used_at IS NULL) AS codes`;

/** How the user can prove a second factor; none if the user has none. Recovery codes alone are no factor. */
export async function methodsOf(reader: Reader, userId: number): Promise<SecondFactorMethod[]> {
  const none = { totp: 0, codes: 0, keys: 0 };
  const { totp, codes, keys } = (await queryOne(reader, counts, countFactors, [userId])) ?? none;
  if (totp + keys === 0) return [];
  const all = { totp, passkey: keys, recovery_code: codes };
  return (["totp", "passkey", "recovery_code"] as const).filter((method) => all[method] > 0);
}

/**
 * After the password. Returns the time of the proof, or null if the user has no second factor. Throws
 * second_factor_required without a code, invalid_code or throttled.
 */
export async function provenAtSignIn(
  services: FactorServices,
  { userId, turn }: { userId: number; turn: Turn },
  code: string | undefined,
  address: string,
): Promise<number | null> {
  const methods = await methodsOf(services.db, userId);
  if (methods.length === 0) return null;
  if (code === undefined || code === "") {
    throw new AppError(
      "second_factor_required",
      "The password is right; this user has a second factor too.",
      {
        methods,
        hint: "Send the code of the authenticator app, or a recovery code, as `otp` with the password.",
      },
    );
  }
  return proveCode(services, userId, code, { place: turn.source, address });
}

/**
 * Checks a code of the app or a recovery code, and counts a wrong one. `place`: a network, or a sign-in. `address`: of the client,
 * for the event of a wrong code. Returns the time of the proof, ms. Throws invalid_code or throttled.
 */
export async function proveCode(
  { db, system, clock, secretKey }: FactorServices,
  userId: number,
  code: string,
  { place, address }: { place: string; address: string },
): Promise<number> {
  const isRight = await db.writeFor({ user: userId }, async (tx) => {
    const now = system.now();
    // Before the limit: no recovery code can be guessed, and whoever has the password could keep the user out otherwise.
    if (await useRecoveryCode(tx, { userId, code, now })) return true;
    await requireFewWrong(tx, userId, place, now);
    // While the clock is in doubt, the phone may agree with either time: whoever may confirm it must be able to sign in.
    for (const at of new Set([now, clock.wall()]))
      if (await useAppCode(tx, secretKey, { userId, code, now: at })) return true;
    await wrongCodes.insert(tx, { userId, place, at: now });
    return false;
  });
  if (isRight) return system.now();
  const user = await users.find(db, { id: userId });
  if (user !== undefined) await recordFailedLogin({ db, system }, user.email, address);
  throw new AppError("invalid_code", "The code is wrong, or it was used before.", {
    hint: "Wait for the next code of the app, and check the clock of the phone.",
  });
}

type Typed = { userId: number; code: string; now: number };

async function useRecoveryCode(tx: Transaction, { userId, code, now }: Typed): Promise<boolean> {
  if ((await methodsOf(tx, userId)).length === 0) return false;
  const codeHash = hashRecoveryCode(code);
  return (await recoveryCodes.update(tx, { userId, codeHash, usedAt: null }, { usedAt: now })) === 1;
}

async function useAppCode(
  tx: Transaction,
  secretKey: SecretKeys,
  { userId, code, now }: Typed,
): Promise<boolean> {
  const typed = code.replaceAll(/\s/g, "");
  for (const { id, secretSealed, confirmedAt, lastStep: last } of await totpSecrets.all(tx, { userId })) {
    if (confirmedAt === null) continue;
    const secret = Buffer.from(openSecret(secretKey, secretSealed, totpContext(userId)), "base64url");
    const lastStep = matchingStep(secret, typed, { nowMs: now, last });
    if (lastStep !== undefined) return (await totpSecrets.update(tx, { id }, { lastStep })) === 1;
  }
  return false;
}

/** Wrong codes: from this place, with the time of the oldest of these (ms), and from everywhere. */
const wrongCounts = computed({ here: integer(), everywhere: integer(), oldest: integerOrNull() });

/** Throws throttled after too many wrong codes of the user. */
export async function requireFewWrong(
  tx: Transaction,
  userId: number,
  place: string,
  now: number,
): Promise<void> {
  const found = await queryOne(
    tx,
    wrongCounts,
    `SELECT count(CASE WHEN place = $2 AND at > $3 THEN 1 END) AS here, count(*) AS everywhere,
       min(CASE WHEN place = $2 AND at > $3 THEN at END) AS oldest
     FROM wrong_codes WHERE user_id = $1 AND at > $4 AND at <= $5`,
    [userId, place, now - fromPlace.withinMs, now - fromEverywhere.withinMs, now + aheadMs],
  );
  if (found === undefined) return;
  const { here, everywhere, oldest } = found;
  if (everywhere >= fromEverywhere.times) throw tooMany(fromEverywhere.withinMs / 1000);
  if (here >= fromPlace.times) throw tooMany(Math.ceil(((oldest ?? now) + fromPlace.withinMs - now) / 1000));
}

function tooMany(retryAfter: number): AppError {
  const message = `Too many wrong codes. Begin again in ${retryAfter} seconds.`;
  return new AppError("throttled", message, { retryAfter });
}
