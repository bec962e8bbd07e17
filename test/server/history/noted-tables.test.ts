// Every column of the database is noted at each change, or said not to decide who reaches whom. A new table or column fails
// here until it is decided.

import { Database as Sqlite } from "bun:sqlite";
import { expect, test } from "bun:test";
import { newestVersion, schemaStatements } from "../../../src/server/store/migrations.ts";
import { parts } from "../../../src/server/store/tables/policy-changes.ts";

/** They hold users' sign-ins, what nodes report, deliveries, and who may administer: none changes what an engine lets through. */
const otherTables = `addresses alarms browser_sessions deliveries device_requests drill_nodes drills enrollments events flows held_names identities
  identity_providers known_networks leases meta migrations notices online_counts organization_identities owner_proofs
  passkeys password_resets paths policy_changes provider_grants recovery_codes refresh_tokens registrants
  registration_requests registration_tokens relay_traffic replicas retired_tokens rollout_nodes rollouts sent_configs sent_files server_samples
  service_tokens session_nodes sightings totp_secrets used_challenges users verified_domains webhooks wrong_codes`;

/** Of the tables that are noted: secrets, reports, timers and counters. `id`, `org_id` and `created_at` are in most. */
const otherColumns: Record<string, string> = {
  authorities: "certificate private_key_sealed offline",
  certificates: "twin renew_at block_after block_version blocked_at_version expiring_told_at",
  name_aliases: "is_shadowed names_version",
  policies:
    "version text applied_at applied_by failing drifted_at checked_state unconfirmed_until undo seals",
  memberships: "secret_hash expires_at invited_by provider_id",
  nodes: `mode public_ip external_port listen_port host_public_key csr csr_key_sha256 token_hash platform agent_version
    overlay_version confirmed_config_version own_version renew_at registered_at revoked_by revoke_reason order_seq order_jws
    keeps_former pins_defaults names_version named_as owner_known watched_from ended_at is_named is_name_server phone
    imported_at away_since route_options advertised tcp may_update update_order seal_refused`,
  organizations: `config_version last_version certificate_version alive_interval order_key_sealed order_key_proof
    rotation_phase rotation_paused rotation_auto rotation_version next_host rotation_heard_from move_open moving_node
    rotation_back blocklist_mark rotation_settled_at rotation_now move_settled_at flow_rechecks names_version names_since
    names_to_all path_reports lighthouses_relay second_factor revoke_leaver_nodes node_approval device_codes self_enrollment
    name_suffix reauthenticate_days reauthenticate_from revoke_unproven_nodes revoke_unproven_from notify_away_minutes
    notify_away_from alarm_rules flows port_mapping`,
};

const words = (text: string) => text.split(/\s+/).filter(Boolean);

test("each table and column is noted, or said not to decide who reaches whom", () => {
  using database = new Sqlite(":memory:");
  for (const statement of schemaStatements(newestVersion)) database.run(statement);
  const tables = database
    .query<{ name: string }, []>(
      "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
    )
    .all()
    .map(({ name }) => name);
  const noted = [...new Set(parts.map(({ table }) => table))];
  expect([...noted, ...words(otherTables)].toSorted()).toEqual(tables.toSorted());
  for (const table of noted) {
    const columns = database.query<{ name: string }, []>(`PRAGMA table_info(${table})`).all();
    const decided = [
      ...parts.filter((each) => each.table === table).flatMap((each) => each.columns),
      ...words(otherColumns[table] ?? ""),
      "id",
      "org_id",
      "created_at",
    ];
    const undecided = columns.map(({ name }) => name).filter((name) => !decided.includes(name));
    expect([table, undecided]).toEqual([table, []]);
  }
});

test("each part has a trigger for each way to write a row", () => {
  const statements = schemaStatements(newestVersion);
  for (const { name, table } of parts) {
    for (const way of ["INSERT", "DELETE", "UPDATE OF"]) {
      const found = statements.filter(
        (each) => each.includes(` AFTER ${way} `) && each.includes(`'${name}'`),
      );
      expect([table, way, found.length]).toEqual([table, way, 1]);
    }
  }
});
