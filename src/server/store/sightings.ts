// The last check-in of each node, in a narrow table of its own: it is written a thousand times as often as the wide rows
// of `nodes`.

import type { Transaction } from "./database.ts";
import { makeRowWriter } from "./row-writer.ts";
import { sightings, type SightingRow } from "./tables/nodes.ts";

/** For SELECT: nodes with their last check-in. */
export const nodesWithSightings = "nodes LEFT JOIN sightings ON node_id = id";

/**
 * A report that is older than the stored one by at most this time is dropped: the replica that has it could not write
 * when the node had already moved to another one. If it is older still, the clock was set back.
 */
const lateMs = 120_000;

/** A null keeps the stored value. The first column is the key. */
const writeRows = makeRowWriter(
  sightings,
  ([, ...columns]) => `ON CONFLICT (node_id) DO UPDATE SET
    ${columns.map((each) => `${each} = coalesce(excluded.${each}, sightings.${each})`).join(", ")}
    WHERE excluded.last_checkin_at NOT BETWEEN sightings.last_checkin_at - ${lateMs} AND sightings.last_checkin_at - 1`,
);

export function writeSightings(tx: Transaction, rows: readonly SightingRow[]): Promise<void> {
  return writeRows(tx, rows.map(valuesOf));
}

/** In the order of the table's columns. */
function valuesOf(row: SightingRow) {
  const { nodeId, lastCheckinAt, reportedVersion, uptime, overlayState, appliedConfigVersion } = row;
  return [nodeId, lastCheckinAt, reportedVersion, uptime, overlayState, appliedConfigVersion, row.dataPlane];
}
