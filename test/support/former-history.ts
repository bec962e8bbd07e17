// PostgreSQL as it was before paths were counted (migration 57).

import type { SQL } from "bun";

export const historyVersion = 57;

export async function undoHistory(sql: SQL): Promise<void> {
  await sql`DROP INDEX events_hours`;
  await sql`ALTER TABLE online_counts DROP COLUMN applied, DROP COLUMN direct, DROP COLUMN relayed,
    DROP COLUMN broken, DROP COLUMN rtt_median, DROP COLUMN rtt95`;
  await sql`DELETE FROM migrations WHERE version = ${historyVersion}`;
}
