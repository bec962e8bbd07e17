// The end of sessions that began at a provider.

import type { Transaction } from "../store/database.ts";
import { browserSessions, deviceRequests, refreshTokens } from "../store/tables/sessions.ts";

/** Ends the sessions that began at the provider: of one user, or of all. */
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
