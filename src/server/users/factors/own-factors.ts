// The second factors of a user: adding and removing an authenticator app, recovery codes, and whether one is required.

import type { Factors } from "../../../api/factors/factors.ts";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { openSecret, sealSecret } from "../../../pki/secrets.ts";
import { base32, matchingStep, totpUri } from "../../../pki/totp.ts";
import { record, type Actor } from "../../audit/record.ts";
import type { Store } from "../../options.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import { queryNumber } from "../../store/table.ts";
import { identities } from "../../store/tables/providers.ts";
import { passkeys, recoveryCodes, totpSecrets, users, wrongCodes } from "../../store/tables/users.ts";
import { userEvent } from "../users.ts";
import { methodsOf, requireFewWrong, totpContext, type FactorServices } from "./second-factor.ts";
import { endSessions } from "../sessions/sessions.ts";
import { doStaffNeedFactor } from "./staff-factor.ts";
import { markProven, keyOfSignIn } from "./step-up.ts";
import type { UserCaller } from "../../http/route.ts";
import { replaceRecoveryCodes } from "./recovery-codes.ts";

type User = { userId: number; email: string };

/** As RFC 4226, section 4, recommends. */
const secretBytes = 20;
/** How long a new secret waits for its first code. */
const pendingMs = 3_600_000;

export async function factorsOf(reader: Reader, userId: number): Promise<Factors> {
  const left = "SELECT count(*) AS n FROM recovery_codes WHERE user_id = $1 AND used_at IS NULL";
  return {
    totp: (await methodsOf(reader, userId)).includes("totp"),
    passkeys: (await passkeys.all(reader, { userId })).length,
    recovery_codes_left: await queryNumber(reader, left, [userId]),
    is_required: await isRequired(reader, userId),
  };
}

/** Whether an organization of the user, or the rule for staff, requires a second factor. */
async function isRequired(reader: Reader, userId: number): Promise<boolean> {
  const sql = `SELECT count(*) AS n FROM memberships m JOIN organizations o ON o.id = m.org_id
    WHERE m.user_id = $1 AND o.second_factor = 1 AND o.deleted_at IS NULL`;
  if ((await queryNumber(reader, sql, [userId])) > 0) return true;
  const staff = "SELECT count(*) AS n FROM users WHERE id = $1 AND is_staff = 1";
  return (await queryNumber(reader, staff, [userId])) > 0 && doStaffNeedFactor(reader);
}

/** A new secret, which counts only after its first code. The present app keeps working until then. */
export async function beginTotp(
  { db, system, secretKey }: FactorServices,
  { userId, email, signIn }: UserCaller,
): Promise<{ secret: string; otpauth_url: string }> {
  const secret = system.random(secretBytes);
  const text = Buffer.from(secret).toString("base64url");
  await db.writeFor({ user: userId }, async (tx) => {
    await totpSecrets.delete(tx, { userId, confirmedAt: null });
    const secretSealed = sealSecret(secretKey, text, totpContext(userId));
    await totpSecrets.insert(tx, {
      userId,
      secretSealed,
      createdAt: system.now(),
      place: keyOfSignIn(signIn),
    });
  });
  return { secret: base32(secret), otpauth_url: totpUri(secret, { issuer: brand.title, user: email }) };
}

/**
 * Takes the first code of the new app. Returns new recovery codes if the user had no second factor. A right code is a fresh
 * proof of this sign-in, and guesses are limited as elsewhere. Throws invalid_code, throttled or not_found.
 */
export async function confirmTotp(
  { db, system, secretKey }: FactorServices,
  caller: UserCaller,
  code: string,
  actor: Actor,
): Promise<string[]> {
  const { userId, email, signIn } = caller;
  // Names the sign-in: its wrong codes count together.
  const place = keyOfSignIn(signIn);
  const codes = await db.write(async (tx) => {
    const now = system.now();
    // Another sign-in of the user must not confirm it: that would count as a proof there.
    const begun = await totpSecrets.all(tx, { userId, confirmedAt: null });
    // Null: an earlier version began it.
    const pending = begun.find((each) => each.place === null || each.place === place);
    if (pending === undefined || pending.createdAt <= now - pendingMs)
      throw new AppError("not_found", "No authenticator app waits for its first code.", {
        hint: "Begin again with a new secret.",
      });
    await requireFewWrong(tx, userId, place, now);
    const secret = openSecret(secretKey, pending.secretSealed, totpContext(userId));
    const typed = code.replaceAll(/\s/g, "");
    // `last` 0: no code of this secret was accepted yet.
    const lastStep = matchingStep(Buffer.from(secret, "base64url"), typed, { nowMs: now, last: 0 });
    if (lastStep === undefined) {
      await wrongCodes.insert(tx, { userId, place, at: now });
      return undefined;
    }
    const isFirst = (await methodsOf(tx, userId)).length === 0;
    // In one transaction: otherwise a concurrent request of the same browser would be asked for a proof.
    await markProven(tx, caller, now);
    await tx.run("DELETE FROM totp_secrets WHERE user_id = $1 AND confirmed_at IS NOT NULL", [userId]);
    await totpSecrets.update(tx, { id: pending.id }, { confirmedAt: now, lastStep });
    await record(tx, {
      ...userEvent(system, actor, email),
      type: "user.factor_added",
      after: { totp: true },
    });
    return isFirst ? replaceRecoveryCodes(tx, system, userId) : [];
  });
  if (codes !== undefined) return codes;
  throw new AppError("invalid_code", "The code does not belong to this secret.", {
    hint: "Check the clock of the phone, and that the app has the newest secret.",
  });
}

/** Throws conflict for the last second factor of a user who needs one. */
export async function removeTotp(
  { db, system }: FactorServices,
  { userId, email }: User,
  actor: Actor,
): Promise<void> {
  await db.write(async (tx) => {
    if ((await totpSecrets.delete(tx, { userId })) === 0)
      throw new AppError("not_found", "You have no authenticator app.");
    await requireRemainingFactor(tx, userId);
    await record(tx, {
      ...userEvent(system, actor, email),
      type: "user.factor_removed",
      before: { totp: true },
    });
  });
}

/**
 * Called in the transaction of a removal. Throws conflict if the user needed that factor: it was the last one where one is required,
 * or a passkey that was the only way to sign in. Without any factor, recovery codes end.
 */
export async function requireRemainingFactor(tx: Transaction, userId: number): Promise<void> {
  if ((await methodsOf(tx, userId)).length > 0) return;
  const user = await users.find(tx, { id: userId });
  const isOnlyWay =
    user?.passwordHash === "" &&
    user.boundOrgId === null &&
    (await identities.find(tx, { userId })) === undefined;
  if (isOnlyWay || (await isRequired(tx, userId))) throw lastFactor();
  await recoveryCodes.delete(tx, { userId });
}

function lastFactor(): AppError {
  return new AppError("conflict", "This is your last second factor, and you need one.", {
    hint: `Add another second factor first. Users who lose the phone ask the operator: \`${brand.executable} admin user reset-factors EMAIL\` on the server.`,
  });
}

/** For the operator, when a user lost all second factors: removes them and ends all sessions. */
export async function resetFactors(
  { db, system }: Store,
  { userId, email }: User,
  actor: Actor,
): Promise<void> {
  await db.write(async (tx) => {
    await totpSecrets.delete(tx, { userId });
    await passkeys.delete(tx, { userId });
    await recoveryCodes.delete(tx, { userId });
    await endSessions(tx, userId, system.now());
    await record(tx, {
      ...userEvent(system, actor, email),
      type: "user.factor_removed",
      before: { all: true },
    });
  });
}
