// Ways of a user to sign in.

import type { Transaction } from "../store/database.ts";
import { queryNumber } from "../store/table.ts";

/**
 * SQL for the row `u` of `users`: whether the user signs in without a provider. A passkey of a user of an organization's provider is
 * a second factor only.
 */
export const ownWayIn = `(u.password_hash <> '' OR (u.bound_org_id IS NULL
    AND EXISTS (SELECT 1 FROM passkeys k WHERE k.user_id = u.id)))`;

/** SQL: whether the user has an identity at a provider other than $2; null: at any. */
const hasIdentity =
  "EXISTS (SELECT 1 FROM identities i WHERE i.user_id = u.id AND i.provider_id IS DISTINCT FROM $2)";

/** Whether the user can sign in, also without this provider if one is given. */
export async function hasWayIn(
  tx: Transaction,
  userId: number,
  without?: { providerId: number },
): Promise<boolean> {
  const ways = `SELECT count(*) AS n FROM users u WHERE u.id = $1 AND (${ownWayIn} OR ${hasIdentity})`;
  return (await queryNumber(tx, ways, [userId, without?.providerId ?? null])) > 0;
}
