// Sets the password of a user. `NewPassword` in src/api/users.ts says how long it must be, hash-passwords.ts hashes it.

import { AppError } from "../../../base/errors.ts";
import { record, type Actor } from "../../audit/record.ts";
import { passwordResets, users } from "../../store/tables/users.ts";
import { endSessions, wrongCredentials } from "../sessions/sessions.ts";
import { userEvent, type UserServices } from "../users.ts";
import type { Turn } from "./password-queue.ts";

/**
 * Sets a password and ends all sessions. `proven`: the caller proved the present password, or has a link (`resetHash`: the hash of its
 * secret). Throws invalid_credentials if the password was changed, the link used, or the user disabled, since then.
 */
export async function setPassword(
  { db, passwords, system }: UserServices,
  userId: number,
  password: string,
  actor: Actor,
  proven?: { passwordHash: string; turn: Turn; resetHash?: string },
): Promise<void> {
  const hashed = await passwords.hash(password, proven?.turn);
  await db.write(async (tx) => {
    const user = await users.find(tx, { id: userId });
    if (user === undefined) throw wrongCredentials();
    if (user.boundOrgId !== null)
      throw new AppError("conflict", `${user.email} signs in by the provider of an organization only.`);
    const resetHash = proven?.resetHash;
    const isUsed =
      resetHash !== undefined && (await passwordResets.delete(tx, { secretHash: resetHash })) === 0;
    if (isUsed) throw wrongCredentials();
    const unchanged = proven === undefined ? {} : { passwordHash: proven.passwordHash, isActive: true };
    const changed = await users.update(tx, { id: userId, ...unchanged }, { passwordHash: hashed });
    if (changed === 0) throw wrongCredentials();
    await passwordResets.delete(tx, { userId });
    await endSessions(tx, userId, system.now());
    await record(tx, { ...userEvent(system, actor, user.email), type: "user.password_changed" });
  });
}
