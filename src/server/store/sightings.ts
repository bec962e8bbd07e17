// The last check-in of each node, in a narrow table of its own: it is written a thousand times as often as the wide rows
// of `nodes`.

import type { Transaction } from "./database.ts";
import { sightings, type SightingRow } from "./tables/nodes.ts";

/** For SELECT: nodes with their last check-in. */
export const nodesWithSightings = "nodes LEFT JOIN sightings ON node_id = id";

/** Rows in one statement. Few sizes keep the number of prepared statements small. */
const sizes = [64, 8, 1];

/**
 * A report that is older than the stored one by at most this time is dropped: the replica that has it could not write
 * when the node had already moved to another one. If it is older still, the clock was set back.
 */
const lateMs = 120_000;

/** A null keeps the stored value. */
export async function writeSightings(tx: Transaction, rows: readonly SightingRow[]): Promise<void> {
  for (let first = 0; first < rows.length;) {
    const size = sizes.find((each) => each <= rows.length - first) ?? 1;
    const params = rows.slice(first, first + size).flatMap(valuesOf);
    await tx.run(statements.get(size) ?? upsert(size), params);
    first += size;
  }
}

/** In the order of the table's columns. */
function valuesOf(row: SightingRow) {
  const { nodeId, lastCheckinAt, reportedVersion, uptime, overlayState, appliedConfigVersion } = row;
  return [nodeId, lastCheckinAt, reportedVersion, uptime, overlayState, appliedConfigVersion, row.dataPlane];
}

const statements: ReadonlyMap<number, string> = new Map(sizes.map((size) => [size, upsert(size)]));

function upsert(rows: number): string {
  const columns = sightings.columnNames;
  const row = (at: number) => columns.map((_, column) => `$${at * columns.length + column + 1}`).join(", ");
  const kept = columns.slice(1).map((each) => `${each} = coalesce(excluded.${each}, sightings.${each})`);
  return `INSERT INTO sightings (${columns.join(", ")})
    VALUES ${Array.from({ length: rows }, (_, at) => `(${row(at)})`).join(", ")}
    ON CONFLICT (node_id) DO UPDATE SET ${kept.join(", ")}
      WHERE excluded.last_checkin_at NOT BETWEEN sightings.last_checkin_at - ${lateMs} AND sightings.last_checkin_at - 1`;
}
