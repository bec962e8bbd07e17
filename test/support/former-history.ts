// PostgreSQL as it was before paths were counted (migration 57), and before nodes offered routes.

import type { SQL } from "bun";

export const historyVersion = 57;

export async function undoHistory(sql: SQL): Promise<void> {
  await sql`DROP INDEX events_hours`;
  await sql`ALTER TABLE online_counts DROP COLUMN applied, DROP COLUMN direct, DROP COLUMN relayed,
    DROP COLUMN broken, DROP COLUMN rtt_median, DROP COLUMN rtt95`;
  await sql`DROP INDEX nodes_advertising`;
  await sql`ALTER TABLE nodes DROP COLUMN route_options, DROP COLUMN advertised`;
  await sql`DELETE FROM migrations WHERE version >= ${historyVersion}`;
}
