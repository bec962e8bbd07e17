// The period at whose end a user has to confirm a node again (reauthentication.ts), or to sign in again (oidc/unproven-users.ts).

import type { Transaction } from "../../store/database.ts";
import { ownerProofs } from "../../store/tables/nodes.ts";

/**
 * Restarts a node's period. "given": an administrator gave the node to the user, by a transfer or a restore.
 * "proven": the user confirmed it, which is no sign-in.
 */
export async function beginPeriod(
  tx: Transaction,
  nodeId: number,
  now: number,
  by: "given" | "proven",
): Promise<void> {
  const onConflict = `ON CONFLICT (node_id) DO UPDATE SET proven_at = excluded.proven_at, told_at = NULL,
    given_at = coalesce(excluded.given_at, owner_proofs.given_at)`;
  const row = { nodeId, provenAt: now, toldAt: null, givenAt: by === "given" ? now : null };
  await ownerProofs.upsert(tx, row, onConflict);
}

/** Records that the users of these nodes were notified of the deadline. A new row has `proven_at` 0: no proof. */
export async function noteTold(tx: Transaction, ids: readonly number[], now: number): Promise<void> {
  const rows = ids.map((_, at) => `($${at + 2}, 0, $1)`).join(", ");
  const sql = `INSERT INTO owner_proofs (node_id, proven_at, told_at) VALUES ${rows}
    ON CONFLICT (node_id) DO UPDATE SET told_at = excluded.told_at`;
  await tx.run(sql, [now, ...ids]);
}
