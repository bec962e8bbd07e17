// What must change in the database after the clock was set back: times that lie in the future now, and certificates that had
// ended by the clock that was ahead. silence.ts notices it.

import { clocksMayDifferMs } from "../../../protocol/finding-kinds.ts";
import type { Transaction } from "../../store/database.ts";
import { organizations } from "../../store/tables/organizations.ts";
import { raiseConfigVersion } from "../../store/versions.ts";

/** Columns whose times in the future become now. */
const timesOfPast = [
  // Nodes that are away would seem to be online.
  { table: "sightings", column: "last_checkin_at" },
  // Of a node that is away, it is equal to the last check-in, and has to stay so: otherwise the node would seem to be back.
  { table: "nodes", column: "away_since" },
  // Providers of identities would not be asked until then.
  { table: "provider_grants", column: "next_at" },
  // A rollout would wait before it changes its next lighthouse.
  { table: "rollout_nodes", column: "at" },
  // A report of a new counter would be dropped as overtaken.
  { table: "relay_traffic", column: "reported_at" },
];

/** Quiet hours end within a day, which has 25 hours when summer time ends. */
const longestQuietMs = 25 * 3_600_000;
/**
 * $1: now, $2: how far the clock was ahead, ms. Retries keep their distance. A delivery without an attempt that is due within a day
 * is held until the quiet hours end: it keeps its time.
 */
const bringDeliveriesForward = `UPDATE deliveries SET next_at = CASE WHEN next_at - $2 > $1 THEN next_at - $2 ELSE $1 END
  WHERE next_at > $1 AND (attempts > 0 OR next_at > $1 + ${longestQuietMs})`;

/** $1: now, ms. $2: the version that lists the certificates as blocked. $3: the organization. */
const blockCertificates = `UPDATE certificates SET state = 'blocked', blocked_at = $1, blocked_at_version = $2
  WHERE org_id = $3 AND kind = 'overlay' AND state <> 'blocked' AND not_after > $1
    AND node_id IN (SELECT id FROM nodes WHERE org_id = $3 AND state = 'revoked' AND ended_at IS NULL)`;

/** `aheadMs`: how far the clock was ahead of the present one. */
export async function applyClockSetBack(tx: Transaction, now: number, aheadMs: number): Promise<void> {
  for (const { table, column } of timesOfPast)
    await tx.run(`UPDATE ${table} SET ${column} = $1 WHERE ${column} > $1`, [now]);
  await tx.run(bringDeliveriesForward, [now, aheadMs]);
  if (aheadMs > clocksMayDifferMs) await blockRevokedAgain(tx, now);
}

/**
 * By the clock that was ahead, certificates had ended that peers still accept: revocations did not block them, and the
 * configurations of that time do not list them.
 */
async function blockRevokedAgain(tx: Transaction, now: number): Promise<void> {
  for (const { id } of await organizations.all(tx, { deletedAt: null }))
    await tx.run(blockCertificates, [now, await raiseConfigVersion(tx, id), id]);
}
