// Asks users for a second factor: always in organizations that require one, and again within 10 minutes before what
// would do most harm in the hands of a thief. A proof belongs to one sign-in: a browser's session, or a family of
// tokens.

import { factorsApi, freshMinutes, totpApi } from "../../../api/factors/factors.ts";
import { AppError } from "../../../base/errors.ts";
import { brand } from "../../../brand.ts";
import type { Actor } from "../../audit/record.ts";
import type { SignIn, UserCaller } from "../../http/route.ts";
import type { Database, Reader, Transaction } from "../../store/database.ts";
import { computed, integerOrNull, queryOne } from "../../store/table.ts";
import { browserSessions, refreshTokens } from "../../store/tables/sessions.ts";
import { aheadMs, methodsOf, proveCode, type FactorServices } from "./second-factor.ts";

const freshMs = freshMinutes * 60_000;

/**
 * Checks the second factor of the sign-in. `isRequired`: the organization, or the rule for staff, requires one. `isFresh`: users who
 * have one must have proven it within 10 minutes. Throws second_factor_missing or step_up_required.
 */
export async function requireFactor(
  db: Database,
  { userId, signIn }: UserCaller,
  { isRequired, isFresh, now }: { isRequired: boolean; isFresh: boolean; now: number },
): Promise<void> {
  if (!isRequired && !isFresh) return;
  const methods = await methodsOf(db, userId);
  if (methods.length === 0) {
    if (isRequired) throw lacksFactor();
    return;
  }
  // The cookie of the docs pages: it reads, and its sign-in asked for the second factor.
  if (signIn === undefined) return;
  const at = await provenAt(db, signIn);
  // A proof later than `aheadMs` from now is from a clock that was set back since: it is not fresh.
  if (at !== null && (!isFresh || (at > now - freshMs && at <= now + aheadMs))) return;
  throw new AppError("step_up_required", "This needs a fresh proof of your second factor.", {
    methods,
    hint: `Send a code to ${factorsApi.prove.path}, then the request again: a proof counts for ${freshMinutes} minutes.`,
  });
}

/** Before a user requires a second factor of all. Throws second_factor_missing. */
export async function requireOwnFactor(reader: Reader, { kind, id }: Actor): Promise<void> {
  if (kind !== "person" || id === null || (await methodsOf(reader, id)).length > 0) return;
  throw lacksFactor("You have no second factor: if you require one, you lock yourself out.");
}

/** Whether the sign-in has proven a second factor at any time, as an organization that requires one demands. */
export async function hasProven(db: Database, { userId, signIn }: UserCaller): Promise<boolean> {
  if ((await methodsOf(db, userId)).length === 0) return false;
  return signIn === undefined || (await provenAt(db, signIn)) !== null;
}

const provenPick = computed({ at: integerOrNull() });

/**
 * When the sign-in last proved a second factor, ms; null: never. Read it after the user's methods: a user who has just added the
 * first one has also proven it.
 */
async function provenAt(db: Database, signIn: SignIn): Promise<number | null> {
  const found =
    "session" in signIn
      ? await queryOne(db, provenPick, "SELECT factor_at AS at FROM browser_sessions WHERE id = $1", [
          signIn.session,
        ])
      : await queryOne(db, provenPick, "SELECT max(factor_at) AS at FROM refresh_tokens WHERE family = $1", [
          signIn.family,
        ]);
  return found?.at ?? null;
}

/** Names a sign-in: its wrong codes count together, and a challenge for it is worth nothing for another. */
export function keyOfSignIn(signIn: SignIn | undefined): string {
  if (signIn === undefined) return "";
  return "session" in signIn ? `session ${signIn.session}` : `family ${signIn.family}`;
}

/** Proves the second factor for the caller's sign-in. Throws invalid_code, throttled or second_factor_missing. */
export async function stepUp(
  services: FactorServices,
  { userId, signIn }: UserCaller,
  code: string,
  address: string,
): Promise<void> {
  if (signIn === undefined) return;
  if ((await methodsOf(services.db, userId)).length === 0) throw lacksFactor();
  const at = await proveCode(services, userId, code, { place: keyOfSignIn(signIn), address });
  await services.db.writeFor({ user: userId }, (tx) => markProven(tx, { userId, signIn }, at));
}

/** From now on, the caller's sign-in counts as one with a second factor. */
export async function markProven(
  tx: Transaction,
  { userId, signIn }: Pick<UserCaller, "userId" | "signIn">,
  at: number,
): Promise<void> {
  // The cookie of the docs pages only reads.
  if (signIn === undefined) return;
  if ("session" in signIn) await browserSessions.update(tx, { id: signIn.session }, { factorAt: at });
  else await refreshTokens.update(tx, { family: signIn.family, userId }, { factorAt: at });
}

function lacksFactor(message = "This needs a second factor, and you have none."): AppError {
  return new AppError("second_factor_missing", message, {
    hint: `Add one with \`${brand.executable} admin factor add\`, or by ${totpApi.create.path}.`,
  });
}
