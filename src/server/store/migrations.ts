// The migrations of the control plane's database: an append-only list, written once for SQLite and PostgreSQL. `adapt`
// below replaces the few words that differ. Steps create tables, columns and indexes, and change no row. Two copy rows: 63 notes
// those that decide who reaches whom, 72 gives flows another key.

import { AppError } from "../../base/errors.ts";
import type { Database, Reader, Transaction } from "./database.ts";
import { readMeta, setMeta } from "./meta.ts";
import { requireOwnTables } from "./postgres/refusals.ts";
import { computed, queryAll, queryNumber, text } from "./table.ts";
import { authorities, certificates } from "./tables/certificates.ts";
import {
  browserSessions,
  deviceRequests,
  refreshTokens,
  retiredTokens,
  sessionNodes,
  serviceTokens,
} from "./tables/sessions.ts";
import { alarms, deliveries, webhooks } from "./tables/webhooks.ts";
import { enrollments, registrationRequests, registrationTokens } from "./tables/joining.ts";
import { events, indexOfHours } from "./tables/events.ts";
import {
  identities,
  identityProviders,
  organizationIdentities,
  groupUsers,
  providerGrants,
  providerGroups,
} from "./tables/providers.ts";
import { leases, serverSamples, meta, notices, liveReplicas, replicas } from "./tables/servers.ts";
import { onlineCounts } from "./tables/online-counts.ts";
import { memberships, knownNetworks, organizations, verifiedDomains } from "./tables/organizations.ts";
import {
  addresses,
  heldNames,
  formerlyUnpublished,
  isUnpublished,
  nodeBytes,
  nodes,
  registrants,
  sightings,
  ownerProofs,
  nodeGroups,
  nameAliases,
  sentConfigs,
  sentFiles,
} from "./tables/nodes.ts";
import {
  passkeys,
  passwordResets,
  recoveryCodes,
  totpSecrets,
  wrongCodes,
  users,
  usedChallenges,
} from "./tables/users.ts";
import { policies, firewallRules } from "./tables/policies.ts";
import { drillNodes, drills } from "./tables/drills.ts";
import { rolloutNodes, rollouts } from "./tables/rollouts.ts";
import { flows, flowsKey, paths as pathTable, relayTraffic } from "./tables/paths.ts";
import { historySteps, policyChanges } from "./tables/policy-changes.ts";

const formerFlowsKey = "node_id, day, side, peer, address, protocol, port";
/** The statement for `flows` as migration 62 had it: with another key and a rowid, and without the column `block`, which 72 adds. */
const formerFlows = (create: string) =>
  create
    .replace(flowsKey, formerFlowsKey)
    .replace(",\nblock INT NOT NULL", "")
    .replace(", WITHOUT ROWID", "");

/** A statement for both databases, or statements by database where `adapt` is not enough. */
type Statement = string | ((dialect: Database["dialect"]) => string[]);

/**
 * Step n brings version n - 1 to n. A step only adds; what is no longer used is removed one release later. Never edit a
 * released step: the test with the fixture of version 5 checks what these steps created.
 */
const steps: readonly (readonly Statement[])[] = [
  // 1
  [
    meta,
    notices,
    organizations,
    users,
    memberships,
    refreshTokens,
    serviceTokens,
    authorities,
    nodes,
    sightings,
    addresses,
    certificates,
    registrationTokens,
    retiredTokens,
    nodeGroups,
    firewallRules,
    events,
    webhooks,
    deliveries,
  ].flatMap(({ create }) => create),
  // 2
  [
    webhooks.add("seenEventId"),
    "CREATE INDEX webhooks_org ON webhooks (org_id) WHERE deleted_at IS NULL",
    certificates.add("expiringToldAt"),
    // The metrics use this index, too.
    `CREATE INDEX certificates_expiring ON certificates (not_after, expiring_told_at, org_id)
       WHERE state = 'current' AND kind = 'overlay'`,
  ],
  // 3
  [
    authorities.add("retiredAt"),
    organizations.add("rotationHeardFrom"),
    "CREATE INDEX certificates_authority ON certificates (authority_id) WHERE state = 'current'",
  ],
  // 4
  [organizations.add("moveOpen"), organizations.add("movingNode")],
  // 5
  [organizations.add("rotationBack")],
  // 6
  [organizations.add("blocklistMark")],
  // 7
  [memberships.add("invitedBy"), webhooks.add("createdBy"), ...registrants.create],
  // 8
  [
    ...heldNames.create,
    addresses.add("freeAt"),
    `CREATE INDEX addresses_version ON addresses (org_id, held_version)
       WHERE held_until IS NOT NULL AND free_at IS NULL`,
    `CREATE INDEX addresses_until ON addresses (org_id, held_until)
       WHERE held_until IS NOT NULL AND free_at IS NULL`,
    "CREATE INDEX addresses_free_at ON addresses (org_id, free_at) WHERE free_at IS NOT NULL",
    // Nodes that may override the conntrack timeout.
    "CREATE INDEX nodes_overridden ON nodes (org_id) WHERE config_overrides <> '{}'",
  ],
  // 9
  [
    organizations.add("rotationSettledAt"),
    organizations.add("rotationNow"),
    organizations.add("moveSettledAt"),
    nodes.add("keepsFormer"),
  ],
  // 10
  [...knownNetworks.create, refreshTokens.add("endsAt")],
  // 11
  [
    events.add("chainBytes"),
    "CREATE INDEX events_archived ON events (org_id, id) WHERE type = 'events.archived'",
    // The database looks for deliveries of each event that is deleted.
    "CREATE INDEX deliveries_event ON deliveries (event_id)",
    "CREATE INDEX deliveries_settled ON deliveries (created_at) WHERE next_at IS NULL",
    `CREATE INDEX nodes_width ON nodes (org_id, ${nodeBytes}) WHERE state <> 'revoked'`,
    "CREATE INDEX retired_tokens_at ON retired_tokens (retired_at)",
  ],
  // 12
  [addresses.add("recheckVersion"), organizations.add("flowRechecks")],
  // 13
  [...leases.create, ...replicas.create],
  // 14
  [nodes.add("pinsDefaults")],
  // 15
  [
    organizations.add("namesVersion"),
    organizations.add("namesSince"),
    organizations.add("namesToAll"),
    nodes.add("namesVersion"),
    nodes.add("namedAs"),
    "CREATE INDEX nodes_names ON nodes (org_id, names_version)",
    `CREATE INDEX nodes_unpublished ON nodes (org_id) WHERE ${formerlyUnpublished}`,
    ...nameAliases.create,
  ],
  // 16
  [...policies.create],
  // 17
  [organizations.add("pathReports"), ...pathTable.create],
  // 18
  [organizations.add("lighthousesRelay")],
  // 19
  [...browserSessions.create],
  // 20
  [
    ...[totpSecrets, recoveryCodes, wrongCodes].flatMap(({ create }) => create),
    refreshTokens.add("factorAt"),
    organizations.add("secondFactor"),
  ],
  // 21
  [serviceTokens.add("scopes"), serviceTokens.add("networks")],
  // 22
  [
    nodes.add("ownerId"),
    nodes.add("ownerKnown"),
    organizations.add("revokeLeaverNodes"),
    "CREATE INDEX nodes_owner ON nodes (owner_id) WHERE owner_id IS NOT NULL",
  ],
  // 23
  [...passkeys.create, ...usedChallenges.create],
  // 24
  [...passwordResets.create],
  // 25
  [
    nodes.add("ephemeralSilenceS"),
    nodes.add("watchedFrom"),
    nodes.add("endedAt"),
    nodes.add("isNamed"),
    registrationTokens.add("ephemeralSilenceS"),
    registrationTokens.add("isNamed"),
    addresses.add("isQuiet"),
    "CREATE INDEX nodes_ephemeral ON nodes (watched_from) WHERE ephemeral_silence_s IS NOT NULL AND state <> 'revoked'",
    "CREATE INDEX nodes_ended ON nodes (ended_at) WHERE ended_at IS NOT NULL",
    `CREATE INDEX nodes_unnamed ON nodes (org_id) WHERE ${isUnpublished}`,
  ],
  // 26
  [organizations.add("nodeApproval"), registrationTokens.add("isApproved"), ...registrationRequests.create],
  // 27
  [
    ...identityProviders.create,
    ...identities.create,
    browserSessions.add("providerId"),
    memberships.add("providerId"),
  ],
  // 28
  [...sentConfigs.create, ...sentFiles.create],
  // 29
  [...deviceRequests.create],
  // 30
  [...relayTraffic.create],
  // 31
  [organizations.add("deviceCodes")],
  // 32
  [refreshTokens.add("providerId"), deviceRequests.add("providerId"), deviceRequests.add("providerUntil")],
  // 33
  [...onlineCounts.create, "CREATE INDEX online_counts_at ON online_counts (at)"],
  // 34
  [
    users.add("boundOrgId"),
    identityProviders.add("orgId"),
    identityProviders.add("label"),
    ...organizationIdentities.create,
    ...verifiedDomains.create,
  ],
  // 35
  [organizations.add("selfEnrollment"), registrationTokens.add("boundDigest"), ...enrollments.create],
  // 36
  [organizations.add("nameSuffix")],
  // 37
  [identityProviders.add("nodeGroups")],
  // 38
  [identityProviders.add("proof"), ...providerGrants.create],
  // 39
  [organizations.add("reauthenticateDays"), organizations.add("reauthenticateFrom"), ...ownerProofs.create],
  // 40
  [nodes.add("ownerGroups"), ...groupUsers.create],
  // 41
  [
    organizations.add("revokeUnprovenNodes"),
    organizations.add("revokeUnprovenFrom"),
    ownerProofs.add("givenAt"),
    identityProviders.add("heldUntil"),
  ],
  // 42: Certificates from the future, which a server looks for all the time.
  ["CREATE INDEX certificates_begin ON certificates (not_before) WHERE state = 'current'"],
  // 43
  [nodes.add("isNameServer")],
  // 44
  [...providerGroups.create],
  // 45
  [providerGrants.add("refusedAt")],
  // 46
  [...serverSamples.create],
  // 47
  [nodes.add("phone"), nodes.add("importedAt")],
  // 48: For the frequent queries of consoles (nodes/attention.ts), without reading all nodes.
  [
    "CREATE INDEX nodes_engines ON nodes (org_id, overlay_version) WHERE state = 'active'",
    "CREATE INDEX nodes_phones ON nodes (org_id) WHERE phone IS NOT NULL",
    `CREATE INDEX certificates_ending ON certificates (org_id, not_after)
       WHERE state = 'current' AND kind = 'overlay'`,
    "CREATE INDEX paths_broken ON paths (org_id, node_id, peer) WHERE probe = 'broken'",
  ],
  // 49
  [registrationRequests.add("askedAt")],
  // 50
  [serviceTokens.add("lastUsedAt")],
  // 51
  [totpSecrets.add("place")],
  // 52: For the size of what an organization stores, without reading the users of all.
  ["CREATE INDEX users_bound ON users (bound_org_id) WHERE bound_org_id IS NOT NULL"],
  // 53
  [
    browserSessions.add("family"),
    "CREATE UNIQUE INDEX browser_sessions_family ON browser_sessions (family)",
    ...sessionNodes.create,
  ],
  // 54: For the few nodes that each open console asks for.
  ["CREATE INDEX sightings_cloned ON sightings (node_id) WHERE overlay_state = 'cloned'"],
  // 55
  [sightings.add("dataPlane")],
  // 56
  [organizations.add("notifyAwayMinutes"), organizations.add("notifyAwayFrom"), nodes.add("awaySince")],
  // 57
  [
    onlineCounts.add("applied"),
    onlineCounts.add("direct"),
    onlineCounts.add("relayed"),
    onlineCounts.add("broken"),
    onlineCounts.add("rttMedian"),
    onlineCounts.add("rtt95"),
    indexOfHours,
  ],
  // 58: Few nodes offer networks.
  [
    nodes.add("routeOptions"),
    nodes.add("advertised"),
    "CREATE INDEX nodes_advertising ON nodes (org_id) WHERE advertised <> '[]'",
  ],
  // 59
  [nodes.add("exitGroups"), "CREATE INDEX nodes_exits ON nodes (org_id) WHERE exit_groups <> '[]'"],
  // 60
  [nodes.add("tcp"), "CREATE INDEX nodes_tcp ON nodes (tcp) WHERE tcp IS NOT NULL"],
  // 61: The index of peers finds who reaches a node that is silent.
  [
    webhooks.add("format"),
    webhooks.add("quietHours"),
    organizations.add("alarmRules"),
    ...alarms.create,
    "CREATE INDEX paths_peer ON paths (org_id, peer)",
  ],
  // 62
  [
    organizations.add("flows"),
    addresses.add("takenAt"),
    ...flows.create.map(formerFlows),
    "CREATE INDEX flows_org ON flows (org_id)",
    "CREATE INDEX flows_day ON flows (day)",
  ],
  // 63
  [...policyChanges.create, historySteps(63)],
  // 64
  [policies.add("seals")],
  // 65
  [
    nodes.add("mayUpdate"),
    nodes.add("updateOrder"),
    "CREATE INDEX nodes_may_update ON nodes (org_id) WHERE may_update IS NOT NULL",
    ...rollouts.create,
    ...rolloutNodes.create,
  ],
  // 66
  [authorities.add("offline")],
  // 67
  [organizations.add("portMapping")],
  // 68
  [nodes.add("sealRefused")],
  // 69
  [...drills.create, ...drillNodes.create],
  // 70
  [drills.add("abortedAt")],
  // 71
  [rollouts.add("compared")],
  // 72: `block` is ten days. Read in the order of the former key: the rows of a node come together, and nothing is sorted.
  [
    (dialect) =>
      dialect === "postgres"
        ? [
            "ALTER TABLE flows ADD COLUMN block BIGINT NOT NULL DEFAULT 0",
            // Written anew once, which is faster than an update of every row.
            `ALTER TABLE flows ALTER COLUMN block DROP DEFAULT, ALTER COLUMN block TYPE BIGINT USING day / 10,
               DROP CONSTRAINT flows_pkey, ADD PRIMARY KEY (${flowsKey})`,
            "DROP INDEX flows_org",
            "DROP INDEX flows_day",
          ]
        : [
            "ALTER TABLE flows RENAME TO former_flows",
            ...flows.create,
            `INSERT INTO flows SELECT *, day / 10 FROM former_flows ORDER BY ${formerFlowsKey}`,
            "DROP TABLE former_flows",
          ],
    "CREATE INDEX flows_days ON flows (org_id, day)",
  ],
  // 73
  [rollouts.add("settings")],
  // 74
  [deviceRequests.add("sessionId")],
];

/**
 * The newest migration that the previous release knows. Because steps only add, the previous release can still work on
 * this release's database: after a rollback, or beside a newer replica during an upgrade.
 */
export const formerVersion = 5;

/**
 * Every table with the columns of its primary key, after the tables that it refers to. Read from the statements: the key is a
 * line of its own, or stands in the line of its column.
 */
export const tableKeys: ReadonlyMap<string, readonly string[]> = new Map([
  ["migrations", ["version"]],
  ...statementsIn(steps.flat(), "sqlite").flatMap((each): [string, string[]][] => {
    const [, name] = /^CREATE TABLE (\w+)/.exec(each) ?? [];
    const [, key = ""] = /^PRIMARY KEY \((.+)\)/m.exec(each) ?? /^(\w+) .*\bPRIMARY KEY\b/m.exec(each) ?? [];
    return name === undefined ? [] : [[name, key.split(", ")]];
  }),
]);

export const tableNames: readonly string[] = [...tableKeys.keys()];

export const newestVersion = steps.length;

const createMigrations =
  "CREATE TABLE IF NOT EXISTS migrations (version INT PRIMARY KEY, applied_at INT NOT NULL) STRICT";

/** The statements that create an empty SQLite database of that version. */
export function schemaStatements(version: number): string[] {
  return statementsIn([createMigrations, ...steps.slice(0, version).flat()], "sqlite");
}

/**
 * Brings the tables up to date. Uses a database that is one release newer without changing it. Throws bad_configuration
 * if it is newer than that. `now` in ms.
 */
export async function migrate(
  database: Database,
  now: number,
  log?: (version: number) => void,
): Promise<void> {
  await database.write(async (tx) => {
    // Replicas that start together wait for each other here. On SQLite, the write lock is held already.
    if (tx.dialect === "postgres") {
      await tx.run("SELECT pg_advisory_xact_lock(8420)");
      requireOwnTables(await namesInUse(tx));
    }
    await tx.run(adapt(createMigrations, tx));
    const version = await versionOf(tx);
    if (version > newestVersion) return requireReadable(tx, version);
    if (version === newestVersion) return;
    if (version >= replicasSince && tx.dialect === "postgres") await requireNewNeighbors(tx);
    for (const [at, statements] of steps.entries()) {
      const step = at + 1;
      if (step <= version) continue;
      for (const statement of statementsIn(statements, tx.dialect)) await tx.run(statement);
      await tx.run("INSERT INTO migrations (version, applied_at) VALUES ($1, $2)", [step, now]);
      log?.(step);
    }
    await setMeta(tx, readableKey, String(formerVersion));
  });
}

/** PostgreSQL: the tables with names of ours. */
async function namesInUse(tx: Transaction): Promise<string[]> {
  const sql = "SELECT tablename::text AS name FROM pg_tables WHERE schemaname = current_schema()";
  const names = (await queryAll(tx, computed({ name: text() }), sql)).map(({ name }) => name);
  return names.filter((name) => tableNames.includes(name));
}

/** The newest migration that is applied; 0 for a new database. */
export function versionOf(reader: Reader): Promise<number> {
  return queryNumber(reader, "SELECT coalesce(max(version), 0) AS n FROM migrations");
}

/** In `meta`: a program that knows migrations up to this number can work on this database. */
const readableKey = "schema_readable_from";

async function requireReadable(tx: Transaction, version: number): Promise<void> {
  const readable = await readMeta(tx, readableKey);
  if (readable !== undefined && Number(readable) <= newestVersion) return;
  throw tooNew(version);
}

export function tooNew(version: number): AppError {
  return new AppError(
    "bad_configuration",
    `The database has version ${version}; this program knows versions up to ${newestVersion}`,
    { hint: "Run the newer program that wrote it, or restore a backup from before the update." },
  );
}

/** The migration that created `replicas`. */
const replicasSince = 13;

/** Throws while a server runs that is more than one release older: it could not work on the migrated tables. */
export async function requireNewNeighbors(tx: Transaction): Promise<void> {
  const old = (await liveReplicas(tx)).find(({ schemaVersion }) => schemaVersion < formerVersion);
  if (old === undefined) return;
  throw new AppError(
    "bad_configuration",
    `The server on ${old.host} runs version ${old.version}, which is too old to run beside this one`,
    { hint: "Upgrade all servers release by release: neighboring releases run side by side." },
  );
}

function statementsIn(statements: readonly Statement[], dialect: Database["dialect"]): string[] {
  return statements.flatMap((each) => (typeof each === "string" ? adapt(each, { dialect }) : each(dialect)));
}

/** SERIAL_ID, KEY_ID, INT, BYTES, STRICT and WITHOUT ROWID are the only differences between the two databases. */
function adapt(statement: string, { dialect }: Pick<Database, "dialect">): string {
  if (dialect === "sqlite") {
    return statement
      .replaceAll("SERIAL_ID", "INTEGER PRIMARY KEY AUTOINCREMENT")
      .replaceAll("KEY_ID", "INTEGER PRIMARY KEY")
      .replaceAll(/\bBYTES\b/g, "BLOB");
  }
  return statement
    .replaceAll("SERIAL_ID", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY")
    .replaceAll("KEY_ID", "BIGINT PRIMARY KEY")
    .replaceAll(/\bINT\b/g, "BIGINT")
    .replaceAll(/\bBYTES\b/g, "BYTEA")
    .replace(/\) STRICT(, WITHOUT ROWID)?$/, ")");
}
