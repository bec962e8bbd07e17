// Ways of a user to sign in, and what ends when one of them ends.

import type { Transaction } from "../store/database.ts";
import { queryNumber } from "../store/table.ts";
import { browserSessions, deviceRequests, refreshTokens } from "../store/tables/sessions.ts";

/**
 * SQL for this row of `users`: whether the user signs in without a provider. A passkey of a user of an organization's
 * provider is a second factor only.
 */
export const ownWayIn = (user: string): string =>
  `(${user}.password_hash <> '' OR (${user}.bound_org_id IS NULL
    AND EXISTS (SELECT 1 FROM passkeys k WHERE k.user_id = ${user}.id)))`;

/** Whether the user can sign in. `except`: a provider that does not count. */
export async function hasWayIn(tx: Transaction, userId: number, except = 0): Promise<boolean> {
  const ways = `SELECT count(*) AS n FROM users u WHERE u.id = $1 AND (${ownWayIn("u")}
    OR EXISTS (SELECT 1 FROM identities i WHERE i.user_id = u.id AND i.provider_id <> $2))`;
  return (await queryNumber(tx, ways, [userId, except])) > 0;
}

/** Ends the sessions that began at a provider: of one user, or of all. */
export async function endSessionsBy(
  tx: Transaction,
  by: { providerId: number; userId?: number },
  now: number,
): Promise<void> {
  await browserSessions.delete(tx, by);
  await refreshTokens.update(tx, { ...by, revokedAt: null }, { revokedAt: now });
  await tx.notify("auth", `provider ${by.providerId}`);
  // Sign-ins of command lines that these sessions approved, and whose tokens were not fetched yet.
  await deviceRequests.delete(tx, by);
}
