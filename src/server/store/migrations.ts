// The tables of the control plane, as steps that are only ever appended. Written once for both databases: the few
// words that differ are replaced in one place below. Nothing here reads or writes rows of the tables it makes.

import { AppError } from "../../errors.ts";
import { numberOf, textOf, type Database, type Transaction } from "./database.ts";
import { authorities, certificates } from "./tables/certificates.ts";
import { deliveries, events, webhooks } from "./tables/events.ts";
import { memberships } from "./tables/memberships.ts";
import { addresses, heldNames, nodes, registrants, sightings } from "./tables/nodes.ts";
import { organizations } from "./tables/organizations.ts";
import { firewallRules, nodeGroups } from "./tables/policy.ts";
import { meta, notices } from "./tables/process.ts";
import { refreshTokens, registrationTokens, retiredTokens, serviceTokens } from "./tables/tokens.ts";
import { users } from "./tables/users.ts";

/**
 * Step n brings version n - 1 to n. A step only adds; removal comes one release later. Never edit a released one: the
 * test of the fixture of version 5 holds what these made.
 */
const steps: readonly (readonly string[])[] = [
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
  [
    webhooks.add("seenEventId"),
    "CREATE INDEX webhooks_org ON webhooks (org_id) WHERE deleted_at IS NULL",
    certificates.add("expiringToldAt"),
    // Also what the metrics count by.
    `CREATE INDEX certificates_expiring ON certificates (not_after, expiring_told_at, org_id)
       WHERE state = 'current' AND kind = 'overlay'`,
  ],
  [
    authorities.add("retiredAt"),
    organizations.add("rotationHeardFrom"),
    "CREATE INDEX certificates_authority ON certificates (authority_id) WHERE state = 'current'",
  ],
  [organizations.add("moveOpen"), organizations.add("movingNode")],
  [organizations.add("rotationBack")],
  [organizations.add("blocklistMark")],
  [memberships.add("invitedBy"), webhooks.add("createdBy"), ...registrants.create],
  [
    ...heldNames.create,
    addresses.add("freeAt"),
    `CREATE INDEX addresses_version ON addresses (org_id, held_version)
       WHERE held_until IS NOT NULL AND free_at IS NULL`,
    `CREATE INDEX addresses_until ON addresses (org_id, held_until)
       WHERE held_until IS NOT NULL AND free_at IS NULL`,
    "CREATE INDEX addresses_free_at ON addresses (org_id, free_at) WHERE free_at IS NOT NULL",
    // Nodes that may have a conntrack timeout of their own.
    "CREATE INDEX nodes_overridden ON nodes (org_id) WHERE config_overrides <> '{}'",
  ],
  [
    organizations.add("rotationSettledAt"),
    organizations.add("rotationNow"),
    organizations.add("moveSettledAt"),
    nodes.add("keepsFormer"),
  ],
];

/**
 * The newest migration that the release before this one knows. Steps only add, so that release can still work on a
 * database of this one: after a rollback, or beside a newer replica during an upgrade.
 */
export const formerVersion = 5;

/** Every table, each after those that it refers to. */
export const tableNames: readonly string[] = [
  "migrations",
  ...steps.flat().flatMap((statement) => /^CREATE TABLE (\w+)/.exec(statement)?.[1] ?? []),
];

export const newestVersion = steps.length;

/**
 * Brings the tables up to date. A database that is one release newer is left as it is and used; one that is newer still
 * is refused with bad_configuration. `now` in ms.
 */
export async function migrate(
  database: Database,
  now: number,
  log?: (version: number) => void,
): Promise<void> {
  await database.write(async (tx) => {
    // PostgreSQL: replicas that start together wait for one another here. SQLite holds its write lock already.
    if (tx.dialect === "postgres") await tx.run("SELECT pg_advisory_xact_lock(8420)");
    await tx.run(
      adapt(
        "CREATE TABLE IF NOT EXISTS migrations (version INT PRIMARY KEY, applied_at INT NOT NULL) STRICT",
        tx,
      ),
    );
    const row = await tx.get("SELECT coalesce(max(version), 0) AS version FROM migrations");
    const version = row === undefined ? 0 : numberOf(row, "version");
    if (version > newestVersion) return requireReadable(tx, version);
    if (version === newestVersion) return;
    for (const [at, statements] of steps.entries()) {
      if (at < version) continue;
      for (const statement of statements) await tx.run(adapt(statement, tx));
      await tx.run("INSERT INTO migrations (version, applied_at) VALUES ($1, $2)", [at + 1, now]);
      log?.(at + 1);
    }
    await tx.run(
      "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
      [readableKey, String(formerVersion)],
    );
  });
}

/** In `meta`: the oldest program, by the newest migration it knows, that can work on this database. */
const readableKey = "schema_readable_from";

async function requireReadable(tx: Transaction, version: number): Promise<void> {
  const row = await tx.get("SELECT value FROM meta WHERE key = $1", [readableKey]);
  if (row !== undefined && Number(textOf(row, "value")) <= newestVersion) return;
  throw new AppError(
    "bad_configuration",
    `The database is of version ${version}; this program knows versions up to ${newestVersion}`,
    { hint: "Run the newer program that made it, or restore a backup from before the update." },
  );
}

/** SERIAL_ID, KEY_ID, INT, BYTES and STRICT are the words in which the two differ. */
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
    .replace(/\) STRICT$/, ")");
}
