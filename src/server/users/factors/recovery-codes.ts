// Recovery codes, which replace a second factor once each.

import { AppError } from "../../../base/errors.ts";
import { base32 } from "../../../pki/totp.ts";
import { record, type Actor } from "../../audit/record.ts";
import type { ServerOptions } from "../../options.ts";
import type { Transaction } from "../../store/database.ts";
import { recoveryCodes } from "../../store/tables/users.ts";
import { userEvent } from "../users.ts";
import { hashRecoveryCode, methodsOf, type FactorServices } from "./second-factor.ts";

const recoveryCodeCount = 10;
/** 80 bits: no code can be guessed, so a plain hash is safe. */
const recoveryCodeBytes = 10;

/** New recovery codes; the former ones end. */
export async function makeRecoveryCodes(
  { db, system }: FactorServices,
  { userId, email }: { userId: number; email: string },
  actor: Actor,
): Promise<string[]> {
  return db.write(async (tx) => {
    if ((await methodsOf(tx, userId)).length === 0)
      throw new AppError("conflict", "Recovery codes replace a second factor, and you have none.");
    await record(tx, {
      ...userEvent(system, actor, email),
      type: "user.factor_added",
      after: { recovery_codes: true },
    });
    return replaceRecoveryCodes(tx, system, userId);
  });
}

/** New recovery codes instead of the present ones. */
export async function replaceRecoveryCodes(
  tx: Transaction,
  { random }: ServerOptions["system"],
  userId: number,
): Promise<string[]> {
  await recoveryCodes.delete(tx, { userId });
  const codes = Array.from({ length: recoveryCodeCount }, () =>
    base32(random(recoveryCodeBytes))
      .toLowerCase()
      .replaceAll(/(.{4})(?=.)/g, "$1-"),
  );
  for (const code of codes) await recoveryCodes.insert(tx, { userId, codeHash: hashRecoveryCode(code) });
  return codes;
}
