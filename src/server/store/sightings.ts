// When each node was last heard of and what it said: a narrow table of its own, because it is written a thousand times
// for each time that the wide rows of `nodes` are.

import type { Transaction, Value } from "./database.ts";

/** null: not said this time, the former value stays. */
export type Sighting = {
  nodeId: number;
  at: number;
  version: string | null;
  uptime: number | null;
  overlayState: string | null;
  applied: number | null;
};

/** For `SELECT *`: the nodes, and what is known of their last check-in. */
export const nodesWithSightings = "nodes LEFT JOIN sightings ON node_id = id";

/** Rows in one statement. Few sizes, so that few statements are kept prepared. */
const sizes = [64, 8, 1];

export async function writeSightings(tx: Transaction, sightings: readonly Sighting[]): Promise<void> {
  for (let first = 0; first < sightings.length;) {
    const size = sizes.find((each) => each <= sightings.length - first) ?? 1;
    const params = sightings.slice(first, first + size).flatMap(valuesOf);
    await tx.run(statements.get(size) ?? upsert(size), params);
    first += size;
  }
}

function valuesOf({ nodeId, at, version, uptime, overlayState, applied }: Sighting): Value[] {
  return [nodeId, at, version, uptime, overlayState, applied];
}

const columns = [
  "node_id",
  "last_checkin_at",
  "reported_version",
  "uptime",
  "overlay_state",
  "applied_config_version",
];

const statements: ReadonlyMap<number, string> = new Map(sizes.map((size) => [size, upsert(size)]));

function upsert(rows: number): string {
  const row = (at: number) => columns.map((_, column) => `$${at * columns.length + column + 1}`).join(", ");
  const kept = columns.slice(1).map((each) => `${each} = coalesce(excluded.${each}, sightings.${each})`);
  return `INSERT INTO sightings (${columns.join(", ")})
    VALUES ${Array.from({ length: rows }, (_, at) => `(${row(at)})`).join(", ")}
    ON CONFLICT (node_id) DO UPDATE SET ${kept.join(", ")}`;
}
