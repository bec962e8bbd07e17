// PostgreSQL as it was before paths were counted (migration 57), or before flows got their key (migration 72): without what the
// steps since then added.

import type { SQL } from "bun";
import { schemaStatements } from "../../src/server/store/migrations.ts";

export const historyVersion = 57;

export async function undoHistory(sql: SQL): Promise<void> {
  const noted =
    await sql`SELECT tgname, tgrelid::regclass::text AS tab FROM pg_trigger WHERE tgname LIKE 'noted_%'`;
  for (const { tgname, tab } of noted) await sql.unsafe(`DROP TRIGGER ${tgname} ON ${tab}`);
  await sql`DROP TABLE policy_changes, flows`;
  await sql`ALTER TABLE organizations DROP COLUMN flows, DROP COLUMN port_mapping`;
  await sql`ALTER TABLE addresses DROP COLUMN taken_at`;
  await sql`DROP INDEX events_hours`;
  await sql`ALTER TABLE online_counts DROP COLUMN applied, DROP COLUMN direct, DROP COLUMN relayed,
    DROP COLUMN broken, DROP COLUMN rtt_median, DROP COLUMN rtt95`;
  // Their indexes go with the columns.
  await sql`ALTER TABLE nodes DROP COLUMN route_options, DROP COLUMN advertised, DROP COLUMN exit_groups, DROP COLUMN tcp,
    DROP COLUMN may_update, DROP COLUMN update_order, DROP COLUMN seal_refused`;
  await sql`ALTER TABLE policies DROP COLUMN seals`;
  await sql`ALTER TABLE device_requests DROP COLUMN session_id`;
  await sql`ALTER TABLE authorities DROP COLUMN offline`;
  await sql`DROP TABLE rollout_nodes, rollouts, drill_nodes, drills`;
  await sql`DROP TABLE alarms`;
  await sql`DROP INDEX paths_peer`;
  await sql`ALTER TABLE webhooks DROP COLUMN format, DROP COLUMN quiet_hours`;
  await sql`ALTER TABLE organizations DROP COLUMN alarm_rules`;
  await sql`DELETE FROM migrations WHERE version >= ${historyVersion}`;
}

export const flowsKeyVersion = 72;

/** What migration 62 made, in the words of PostgreSQL. */
export async function undoFlowsKey(sql: SQL): Promise<void> {
  await sql`DROP TABLE flows`;
  await sql`ALTER TABLE rollouts DROP COLUMN settings`;
  await sql`ALTER TABLE device_requests DROP COLUMN session_id`;
  for (const each of schemaStatements(flowsKeyVersion - 1).filter((made) => / flows \(/.test(made)))
    await sql.unsafe(each.replace(/\) STRICT$/, ")").replaceAll(/\bINT\b/g, "BIGINT"));
  await sql`DELETE FROM migrations WHERE version >= ${flowsKeyVersion}`;
}
