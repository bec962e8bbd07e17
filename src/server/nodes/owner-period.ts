// The period at whose end a user has to confirm a node again, see reauthentication.ts.

import type { Transaction } from "../store/database.ts";
import { ownerProofs } from "../store/tables/owner-proofs.ts";

/** The time of the node begins anew: its user proved it, or it has another one, or it was restored. */
export async function beginPeriod(tx: Transaction, nodeId: number, now: number): Promise<void> {
  const again = "ON CONFLICT (node_id) DO UPDATE SET proven_at = excluded.proven_at, told_at = NULL";
  await ownerProofs.upsert(tx, { nodeId, provenAt: now, toldAt: null }, again);
}
