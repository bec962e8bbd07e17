// The period at whose end a user has to confirm a node again (reauthentication.ts), or to sign in again (oidc/unproven.ts).

import type { Transaction } from "../store/database.ts";
import { ownerProofs } from "../store/tables/owner-proofs.ts";

/**
 * The time of the node begins anew. "given": an administrator gave it to the user, by a transfer or a restore. "proven": the
 * user said so; that is no sign-in.
 */
export async function beginPeriod(
  tx: Transaction,
  nodeId: number,
  now: number,
  by: "given" | "proven",
): Promise<void> {
  const again = `ON CONFLICT (node_id) DO UPDATE SET proven_at = excluded.proven_at, told_at = NULL,
    given_at = coalesce(excluded.given_at, owner_proofs.given_at)`;
  const row = { nodeId, provenAt: now, toldAt: null, givenAt: by === "given" ? now : null };
  await ownerProofs.upsert(tx, row, again);
}
