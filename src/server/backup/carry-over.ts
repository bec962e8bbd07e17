// Carries ended rights from the replaced database into the restored backup. Nodes, rules, tokens, members and
// passwords get the state of the replaced database where it grants less. What was granted after the backup is lost.

import type { Reader, Transaction } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { authorities } from "../store/tables/certificates.ts";
import { deliveries, webhooks } from "../store/tables/webhooks.ts";
import { organizations, type OrganizationRow } from "../store/tables/organizations.ts";
import { registrationRequests, registrationTokens } from "../store/tables/joining.ts";
import { retiredTokens, serviceTokens } from "../store/tables/sessions.ts";
import { keepPresent, type Carried } from "./carried.ts";
import { carryNodeTokens, carryNodes, doOverridesDiffer } from "./carry-nodes.ts";
import { carryGroupUsers, carryIdentities, carryMembers, carryProviders, carryUsers } from "./carry-users.ts";
import { carryRules, carrySeals, outdatePlans } from "./carry-rules.ts";
import { isStaff, users } from "../store/tables/users.ts";
import { carryStaffFactor } from "../users/factors/staff-factor.ts";

/** `old`: the replaced database; `tx`: the restored one. The caller has raised the configuration versions before. `now` in ms. */
export async function carryOver(old: Reader, tx: Transaction, now: number): Promise<Carried> {
  const carried: Carried = {
    revoked_nodes: 0,
    lost_nodes: [],
    register_again: [],
    authorities_lost: [],
    deleted_rules: 0,
    lost_rules: 0,
    staff_missing: false,
    overrides_back: [],
    networks6_lost: [],
    seals_kept: [],
  };
  // Before the groups of nodes, which follow from them.
  await carryIdentities(old, tx);
  for (const org of await organizations.all(tx, {})) {
    const { id, slug, createdAt, deletedAt, configVersion } = org;
    // Only the same organization: another installation may use the same id.
    const replaced = await organizations.find(old, { id, slug, createdAt });
    if (replaced === undefined) continue;
    const ended = { deletedAt: deletedAt ?? replaced.deletedAt };
    await organizations.update(tx, { id }, { ...demandsOf(replaced), ...ended });
    if (doOverridesDiffer(org, replaced)) carried.overrides_back.push(slug);
    if (org.network6 === null && replaced.network6 !== null) carried.networks6_lost.push(slug);
    await carryNodes(old, tx, { id, slug, version: configVersion }, now, carried);
    await carryRules(old, tx, id, now, carried);
    await outdatePlans(old, tx, id);
    if (await carrySeals(old, tx, id)) carried.seals_kept.push(slug);
    await carryNodeTokens(old, tx, id);
    if (await hasLostAuthority(old, tx, id, now)) carried.authorities_lost.push(slug);
    await carryTokens(old, tx, id);
    await carryMembers(old, tx, id);
    await carryGroupUsers(old, tx, id);
    await carryWebhooks(old, tx, id);
  }
  await carryUsers(old, tx);
  await carryStaffFactor(old, tx);
  carried.staff_missing = !(await users.all(tx, { isStaff: true, isActive: true })).some(isStaff);
  await carryProviders(old, tx);
  await retireLostTokens(old, tx, now);
  return carried;
}

/**
 * Machines and programs go on with tokens that the restored database lacks. They must not count as guesses, which would lock their
 * network out. A token in use must not be among the retired ones: replacing it would not be told to other servers.
 */
async function retireLostTokens(old: Reader, tx: Transaction, now: number): Promise<void> {
  const sql = `SELECT token_hash, retired_at FROM retired_tokens
    UNION ALL SELECT token_hash, CAST($1 AS BIGINT) FROM nodes WHERE token_hash IS NOT NULL
    UNION ALL SELECT token_hash, CAST($1 AS BIGINT) FROM service_tokens`;
  for (const { tokenHash, retiredAt } of await queryAll(old, retiredTokens, sql, [now])) {
    await tx.run(
      `INSERT INTO retired_tokens (token_hash, retired_at) SELECT $1, $2
       WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE token_hash = $1)
         AND NOT EXISTS (SELECT 1 FROM service_tokens WHERE token_hash = $1) ${keepPresent}`,
      [tokenHash, retiredAt],
    );
  }
}

/**
 * What an organization demands of those who sign in and join, what ends with them, and what nodes learn and report of others, as its
 * administrators said last.
 */
const demandsOf = (org: OrganizationRow) => ({
  secondFactor: org.secondFactor,
  deviceCodes: org.deviceCodes,
  selfEnrollment: org.selfEnrollment,
  nodeApproval: org.nodeApproval,
  revokeLeaverNodes: org.revokeLeaverNodes,
  revokeUnprovenNodes: org.revokeUnprovenNodes,
  revokeUnprovenFrom: org.revokeUnprovenFrom,
  reauthenticateDays: org.reauthenticateDays,
  reauthenticateFrom: org.reauthenticateFrom,
  namesToAll: org.namesToAll,
  flows: org.flows,
});

const retirement = authorities.pick("id", "retiredAt");

/** Whether a CA was created after the backup, or one that the backup trusts was retired after it. */
async function hasLostAuthority(old: Reader, tx: Transaction, orgId: number, now: number): Promise<boolean> {
  const sql = `SELECT ${retirement.select()} FROM authorities WHERE org_id = $1 AND not_after > $2`;
  for (const { id, retiredAt } of await queryAll(old, retirement, sql, [orgId, now])) {
    const restored = await authorities.find(tx, { id });
    const isNew = retiredAt === null && restored === undefined;
    const isTrustedAgain = retiredAt !== null && restored?.retiredAt === null;
    if (isNew || isTrustedAgain) return true;
  }
  return false;
}

async function carryTokens(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  for (const { tokenHash, used, revokedAt } of await registrationTokens.all(old, { orgId })) {
    await tx.run(
      `UPDATE registration_tokens SET used = CASE WHEN used < $2 THEN $2 ELSE used END,
         revoked_at = coalesce(revoked_at, $3) WHERE token_hash = $1`,
      [tokenHash, used, revokedAt],
    );
  }
  // The approval may have been used since, by a machine that was revoked: an administrator looks again.
  await registrationRequests.update(tx, { orgId, state: "approved" }, { state: "waiting" });
  for (const { tokenHash, revokedAt } of await serviceTokens.all(old, { orgId })) {
    if (revokedAt !== null) await serviceTokens.update(tx, { tokenHash, revokedAt: null }, { revokedAt });
  }
}

/** Waiting deliveries of a webhook that was deleted or changed after the backup are not sent. */
async function carryWebhooks(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  for (const { id, url, format, events, quietHours, deletedAt } of await webhooks.all(old, { orgId })) {
    const changed = await tx.run(
      `UPDATE webhooks SET url = $3, events = $4, deleted_at = coalesce(deleted_at, $5), format = $6, quiet_hours = $7
       WHERE id = $1 AND org_id = $2 AND (url <> $3 OR events <> $4 OR format <> $6
         OR coalesce(quiet_hours, '') <> coalesce($7, '') OR (deleted_at IS NULL AND $5 IS NOT NULL))`,
      [id, orgId, url, JSON.stringify(events), deletedAt, format, quietHours],
    );
    // Null: no further attempt is due.
    if (changed > 0) await deliveries.update(tx, { webhookId: id }, { nextAt: null });
  }
}
