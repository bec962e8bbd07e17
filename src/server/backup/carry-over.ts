// Carries ended rights from the replaced database into the restored backup. Nodes, rules, tokens, members and
// passwords get the state of the replaced database where it grants less. What was granted after the backup is lost.

import * as v from "valibot";
import { blockAfterMs } from "../nodes/lifecycle/upkeep.ts";
import { insertGroups } from "../policy/groups.ts";
import { Peer } from "../../api/rules.ts";
import { leaveAddresses } from "../allocation/address-pool.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { boundHolds } from "../allocation/holds.ts";
import { certifiedGroups, isUsersGroup, userOfGroup, providerOfGroup } from "../../protocol/users-groups.ts";
import { computed, integerOrNull, queryAll, queryNumber, queryOne, textOrNull } from "../store/table.ts";
import { authorities, certificates } from "../store/tables/certificates.ts";
import { deliveries, webhooks } from "../store/tables/webhooks.ts";
import { firewallRules, policies } from "../store/tables/policies.ts";
import { memberships, organizations, verifiedDomains } from "../store/tables/organizations.ts";
import { addresses, heldNames, nodes, type NodeRow } from "../store/tables/nodes.ts";
import {
  identityProviders,
  groupUsers,
  providerGroups,
  identities,
  organizationIdentities,
} from "../store/tables/providers.ts";
import { registrationRequests, registrationTokens } from "../store/tables/joining.ts";
import { retiredTokens, serviceTokens } from "../store/tables/sessions.ts";
import { users } from "../store/tables/users.ts";
import { readOwnerGroups } from "../policy/group-users.ts";

export type Carried = {
  revoked_nodes: number;
  lost_nodes: string[];
  /** Organizations whose CA was replaced after the backup: they trust the retired CA again. */
  authorities_lost: string[];
  /** Rules of the backup that were deleted after it, and stay deleted. */
  deleted_rules: number;
  /** Rules that were created after the backup. */
  lost_rules: number;
  /** Organizations (`acme`) and nodes (`acme/laptop`) whose overrides changed after the backup: they are back. */
  overrides_back: string[];
};

/** `old`: the replaced database. The caller has raised the configuration versions before. `now` in ms. */
export async function carryOver(old: Reader, tx: Transaction, now: number): Promise<Carried> {
  const carried: Carried = {
    revoked_nodes: 0,
    lost_nodes: [],
    authorities_lost: [],
    deleted_rules: 0,
    lost_rules: 0,
    overrides_back: [],
  };
  for (const org of await organizations.all(tx, {})) {
    const { id, slug, createdAt, deletedAt, configVersion } = org;
    // Only the same organization: another installation may use the same id.
    const same = await organizations.find(old, { id, slug, createdAt });
    if (same === undefined) continue;
    await organizations.update(tx, { id }, { deletedAt: deletedAt ?? same.deletedAt });
    if (doOverridesDiffer(org, same)) carried.overrides_back.push(slug);
    await carryNodes(old, tx, { id, slug, version: configVersion }, now, carried);
    await carryRules(old, tx, id, now, carried);
    await settlePolicy(old, tx, id);
    await carryNodeTokens(old, tx, id);
    if (await hasLostAuthority(old, tx, id, now)) carried.authorities_lost.push(slug);
    await carryTokens(old, tx, id);
    await carryMembers(old, tx, id);
    await carryGroupUsers(old, tx, id);
    await carryWebhooks(old, tx, id);
  }
  await carryUsers(old, tx);
  await carryProviders(old, tx);
  for (const row of await retiredTokens.all(old, {})) await retiredTokens.upsert(tx, row, keepPresent);
  return carried;
}

type Org = { id: number; slug: string; version: number };

type Overrides = Pick<NodeRow, "configOverrides">;
const doOverridesDiffer = (one: Overrides, other: Overrides) =>
  JSON.stringify(one.configOverrides) !== JSON.stringify(other.configOverrides);

const keepPresent = "ON CONFLICT DO NOTHING";
const replaceNode = `ON CONFLICT (id) DO UPDATE SET ${nodes.columnNames
  .filter((name) => name !== "id")
  .map((name) => `${name} = excluded.${name}`)
  .join(", ")}`;

async function carryNodes(old: Reader, tx: Transaction, org: Org, now: number, carried: Carried) {
  for (const node of await nodes.all(old, { orgId: org.id })) {
    const { id } = node;
    const known = await nodes.find(tx, { id });
    if (known !== undefined && node.state !== "revoked" && doOverridesDiffer(known, node))
      carried.overrides_back.push(`${org.slug}/${node.name}`);
    if (known?.state === "pending" && node.state !== "revoked") await narrowRights(tx, node, known);
    if (node.state === "pending") continue;
    if (node.state === "revoked") {
      if (known?.state !== "revoked") carried.revoked_nodes++;
      // A user that the backup lacks: the number may be given to another user.
      await nodes.upsert(tx, { ...node, ownerId: known?.ownerId ?? null }, replaceNode);
    } else if (known?.state !== "active") {
      carried.lost_nodes.push(node.name);
      if (known === undefined) await insertTombstone(tx, node, now);
      // The node was revoked before the backup and restored after it, so it accepts no older order. The server signs a
      // new one when the node asks.
      else await nodes.update(tx, { id }, { orderJws: null });
    } else if (node.tokenHash !== null && hasLostRegistration(node, known)) {
      carried.lost_nodes.push(node.name);
      await retireToken(tx, node, now);
    }
    await carryCertificates(old, tx, org, id, now);
    if (node.state === "active" && known?.state === "active") await carryRights(tx, node, known, now);
    else if (node.endedAt === null) await block(tx, org, id, now);
    await carryAddresses(old, tx, org, id);
    if (known?.state !== "revoked") await carryName(old, tx, org, node);
  }
  await carryHeldNames(old, tx, org);
  // At its next check-in each node gets the certificates that it lacks.
  await nodes.update(tx, { orgId: org.id, state: "active" }, { renewAt: 0 });
}

/** A machine of an imported network registered after the backup: its key and its token are unknown there. */
function hasLostRegistration(node: NodeRow, known: NodeRow): boolean {
  return known.tokenHash === null || known.hostPublicKey !== node.hostPublicKey;
}

/** A node that registered after the backup. It has to register again, with a token for its name. */
async function insertTombstone(tx: Transaction, node: NodeRow, now: number): Promise<void> {
  await nodes.insert(tx, {
    ...node,
    state: "revoked",
    revokedAt: now,
    revokedBy: "operator/",
    revokeReason: "registered after the backup that was restored",
    hostPublicKey: null,
    csr: null,
    csrKeySha256: null,
    tokenHash: null,
  });
  await retireToken(tx, node, now);
}

/** A retired token does not count as a guess. */
async function retireToken(tx: Transaction, { tokenHash }: NodeRow, now: number): Promise<void> {
  if (tokenHash !== null) await retiredTokens.upsert(tx, { tokenHash, retiredAt: now }, keepPresent);
}

/** Stores every overlay certificate that has not expired, so that it can be blocked. Blocked ones stay blocked. */
async function carryCertificates(
  old: Reader,
  tx: Transaction,
  org: Org,
  nodeId: number,
  now: number,
): Promise<void> {
  const rows = await queryAll(
    old,
    certificates,
    `SELECT ${certificates.select()} FROM certificates
     WHERE node_id = $1 AND kind = 'overlay' AND not_after > $2 ORDER BY id`,
    [nodeId, now],
  );
  if (rows.some(({ state }) => state === "current")) {
    await certificates.update(tx, { nodeId, kind: "overlay", state: "current" }, { state: "former" });
  }
  for (const { id: _, ...row } of rows) {
    // Nothing trusts a CA that the backup does not have.
    if ((await authorities.find(tx, { id: row.authorityId })) === undefined) continue;
    await certificates.upsert(
      tx,
      row.state === "blocked" ? { ...row, blockedAtVersion: org.version } : row,
      `ON CONFLICT (fingerprint) DO UPDATE SET state = excluded.state, block_after = excluded.block_after,
         block_version = excluded.block_version, blocked_at = excluded.blocked_at,
         blocked_at_version = excluded.blocked_at_version
       WHERE certificates.state <> 'blocked'`,
    );
  }
}

/** Blocks all certificates of a node that is gone, with the version that all nodes fetch next. */
async function block(tx: Transaction, org: Org, nodeId: number, now: number): Promise<void> {
  await tx.run(
    `UPDATE certificates SET state = 'blocked', block_after = NULL, blocked_at = $2, blocked_at_version = $3
     WHERE node_id = $1 AND kind = 'overlay' AND state <> 'blocked' AND not_after > $2`,
    [nodeId, now, org.version],
  );
}

/** Removes groups and subnets that the node had lost. Its certificates that may grant more than that end soon. */
async function carryRights(tx: Transaction, node: NodeRow, known: NodeRow, now: number): Promise<void> {
  await narrowRights(tx, node, known);
  const certified = (row: NodeRow) =>
    JSON.stringify([row.name, row.ip, row.ip6, certifiedGroups(row), row.subnets]);
  if (certified(known) === certified(node)) return;
  await tx.run(
    `UPDATE certificates SET state = 'former', block_after = coalesce(block_after, $2)
     WHERE node_id = $1 AND kind = 'overlay' AND state <> 'blocked' AND not_after > $3`,
    [node.id, now + blockAfterMs, now],
  );
}

async function narrowRights(tx: Transaction, node: NodeRow, known: NodeRow): Promise<void> {
  const groups = known.groups.filter((each) => node.groups.includes(each));
  const subnets = known.subnets.filter((each) => node.subnets.includes(each));
  // A former owner gets nothing back. A user that the backup lacks: the number may be given to another user.
  const isKnown = node.ownerId !== null && (await users.find(tx, { id: node.ownerId })) !== undefined;
  await nodes.update(tx, { id: node.id }, { groups, subnets, ownerId: isKnown ? node.ownerId : null });
}

/** Rules only permit. A rule that changed keeps its newest form: which of two forms permits less is not decidable. */
async function carryRules(old: Reader, tx: Transaction, orgId: number, now: number, carried: Carried) {
  const present = new Map((await firewallRules.all(old, { orgId })).map((row) => [row.id, row]));
  for (const { id, createdAt } of await firewallRules.all(tx, { orgId })) {
    const row = present.get(id);
    present.delete(id);
    if (row === undefined || row.createdAt !== createdAt) {
      await firewallRules.delete(tx, { orgId, id });
      carried.deleted_rules++;
      continue;
    }
    const groups = [row.peer, row.target]
      .map((value) => v.parse(Peer, value))
      .flatMap((side) => ("group" in side ? [side.group] : []));
    if (await namesLostUser(tx, groups)) {
      await firewallRules.delete(tx, { orgId, id });
      carried.deleted_rules++;
      continue;
    }
    await insertGroups(
      tx,
      orgId,
      groups.filter((group) => !isUsersGroup(group)),
      now,
    );
    await firewallRules.update(tx, { orgId, id }, row);
  }
  carried.lost_rules += present.size;
}

/**
 * A user or provider that the backup lacks: the number may be given to another one, who must not inherit the rule.
 */
async function namesLostUser(tx: Transaction, groups: readonly string[]): Promise<boolean> {
  for (const id of groups.map(userOfGroup))
    if (id !== undefined && (await users.find(tx, { id })) === undefined) return true;
  for (const id of groups.map(providerOfGroup))
    if (id !== undefined && (await identityProviders.find(tx, { id })) === undefined) return true;
  return false;
}

/**
 * An application that waited for its confirmation at the backup stays: taking it back could bring back rules that were
 * deleted since. Plans of either database are outdated.
 */
async function settlePolicy(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  const [known, replaced] = [await policies.find(tx, { orgId }), await policies.find(old, { orgId })];
  if (known === undefined) return;
  const version = Math.max(known.version, replaced?.version ?? 0) + 1;
  await policies.update(tx, { orgId }, { version, unconfirmedUntil: null, undo: null });
}

const nodeToken = nodes.pick("id", "hostPublicKey", "tokenHash");

/** Only the last token that a node was given stays valid. */
async function carryNodeTokens(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  const sql = `SELECT ${nodeToken.select()} FROM nodes
    WHERE org_id = $1 AND state = 'active' AND token_hash IS NOT NULL`;
  for (const { id, hostPublicKey, tokenHash } of await queryAll(old, nodeToken, sql, [orgId])) {
    await tx.run(
      `UPDATE nodes SET token_hash = $3
       WHERE id = $1 AND host_public_key = $2 AND state = 'active' AND token_hash <> $3`,
      [id, hostPublicKey, tokenHash],
    );
  }
}

const hold = computed({ until: integerOrNull(), state: textOrNull() });

/** Keeps an address from other nodes while a certificate of this node names it. */
async function carryAddresses(old: Reader, tx: Transaction, org: Org, nodeId: number): Promise<void> {
  const found = await queryOne(
    tx,
    hold,
    `SELECT max(c.not_after) AS until, max(n.state) AS state FROM nodes n
     LEFT JOIN certificates c ON c.node_id = n.id AND c.kind = 'overlay' WHERE n.id = $1`,
    [nodeId],
  );
  const until = found?.until ?? 0;
  for (const address of await addresses.all(old, { orgId: org.id, nodeId })) {
    await addresses.upsert(
      tx,
      { ...address, heldUntil: address.heldUntil ?? until, freeAt: null, recheckVersion: null },
      `ON CONFLICT (org_id, host) DO UPDATE SET node_id = excluded.node_id, held_version = excluded.held_version,
         held_until = excluded.held_until, free_at = NULL, recheck_version = NULL WHERE addresses.node_id IS NULL`,
    );
  }
  if (found?.state === "revoked") {
    await leaveAddresses(tx, org.id, nodeId, { version: org.version, until });
    await boundHolds(tx, nodeId, org.version);
  }
}

/** Holds the node's last name if the restored database has another name for it, or has revoked it. */
async function carryName(old: Reader, tx: Transaction, org: Org, { id, name }: NodeRow): Promise<void> {
  const present = await nodes.find(tx, { id, name });
  if (present !== undefined && present.state !== "revoked") return;
  const heldUntil = await queryNumber(
    old,
    "SELECT coalesce(max(not_after), 0) AS n FROM certificates WHERE node_id = $1 AND kind = 'x509'",
    [id],
  );
  await holdName(tx, org, { orgId: org.id, name, nodeId: id, heldUntil });
}

async function carryHeldNames(old: Reader, tx: Transaction, org: Org): Promise<void> {
  for (const row of await heldNames.all(old, { orgId: org.id })) {
    if ((await nodes.find(tx, { id: row.nodeId })) !== undefined) await holdName(tx, org, row);
  }
}

/** Holds a name until all nodes have confirmed the version that they fetch next. */
async function holdName(
  tx: Transaction,
  org: Org,
  name: Parameters<typeof heldNames.insert>[1],
): Promise<void> {
  await heldNames.upsert(
    tx,
    { ...name, heldVersion: org.version, freeAt: null },
    `ON CONFLICT (org_id, name, node_id) DO UPDATE
       SET held_version = excluded.held_version, held_until = excluded.held_until, free_at = NULL`,
  );
}

const retirement = authorities.pick("id", "retiredAt");

/** Whether a CA was created after the backup, or one that the backup trusts was retired after it. */
async function hasLostAuthority(old: Reader, tx: Transaction, orgId: number, now: number): Promise<boolean> {
  const sql = `SELECT ${retirement.select()} FROM authorities WHERE org_id = $1 AND not_after > $2`;
  for (const { id, retiredAt } of await queryAll(old, retirement, sql, [orgId, now])) {
    const known = await authorities.find(tx, { id });
    if (retiredAt === null ? known === undefined : known?.retiredAt === null) return true;
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

/** An invitation survives only with the same link. A membership that is only an invitation in `old` is deleted. */
async function carryMembers(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  for (const { id, email, secretHash } of await memberships.all(tx, { orgId })) {
    const kept = await memberships.find(old, { orgId, email });
    if (kept?.secretHash === secretHash) await memberships.update(tx, { id }, { role: kept.role });
    else await memberships.delete(tx, { id });
  }
}

/** Waiting deliveries of a webhook that was deleted or changed after the backup are not sent. */
async function carryWebhooks(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  for (const { id, url, events, deletedAt } of await webhooks.all(old, { orgId })) {
    const changed = await tx.run(
      `UPDATE webhooks SET url = $3, events = $4, deleted_at = coalesce(deleted_at, $5)
       WHERE id = $1 AND org_id = $2 AND (url <> $3 OR events <> $4 OR (deleted_at IS NULL AND $5 IS NOT NULL))`,
      [id, orgId, url, JSON.stringify(events), deletedAt],
    );
    if (changed > 0) await deliveries.update(tx, { webhookId: id }, { nextAt: null });
  }
}

async function carryUsers(old: Reader, tx: Transaction): Promise<void> {
  for (const { email, createdAt, isActive, isStaff, passwordHash } of await users.all(old, {})) {
    await users.update(tx, { email, createdAt }, { isActive, isStaff, passwordHash });
  }
}

// Carries the groups of users' nodes into the restored backup: a user, or a group of a provider, is in a group where
// both databases say so.

const pick = nodes.pick("id", "ownerId", "ownerGroups");

/** The caller has carried nodes, with their certificates, and members before. */
export async function carryGroupUsers(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  for (const { id, name, people } of await groupUsers.all(tx, { orgId })) {
    const isKept = (await groupUsers.find(old, { orgId, name, people })) !== undefined;
    const userId = userOfGroup(people);
    const isThere =
      userId === undefined
        ? (await providerGroups.find(old, { orgId, people })) !== undefined
        : (await memberships.find(tx, { orgId, userId })) !== undefined;
    if (!isKept || !isThere) await groupUsers.delete(tx, { id });
  }
  for (const { id, people } of await providerGroups.all(tx, { orgId }))
    if ((await providerGroups.find(old, { orgId, people })) === undefined)
      await providerGroups.delete(tx, { id });
  const groupsOf = await readOwnerGroups(tx, orgId);
  const owned = `SELECT ${pick.select()} FROM nodes WHERE org_id = $1 AND (owner_id IS NOT NULL OR owner_groups <> '[]')`;
  for (const { id, ownerId, ownerGroups } of await queryAll(tx, pick, owned, [orgId])) {
    const after = ownerId === null ? [] : groupsOf(ownerId);
    if (after.join() !== ownerGroups.join()) await nodes.update(tx, { id }, { ownerGroups: after });
  }
}

// Providers of identities and verified domains in a restored database: what was deleted, or restricted, after the
// backup stays so. A deleted provider must not sign in any user again.

/** `old`: the replaced database. Tokens of providers are not in `tx` any more. */
export async function carryProviders(old: Reader, tx: Transaction): Promise<void> {
  for (const { id, issuer, createdAt } of await identityProviders.all(tx, {})) {
    const kept = await identityProviders.find(old, { id, issuer, createdAt });
    if (kept === undefined) {
      await organizationIdentities.delete(tx, { providerId: id });
      await identities.delete(tx, { providerId: id });
      await identityProviders.delete(tx, { id });
      continue;
    }
    const { roles, nodeGroups, requiredGroups, domains, tenant, createsUsers, trust } = kept;
    const settings = { roles, nodeGroups, requiredGroups, domains, tenant, createsUsers, trust };
    await identityProviders.update(tx, { id }, settings);
  }
  for (const { id, orgId, domain, proof } of await verifiedDomains.all(tx, {})) {
    const kept = await verifiedDomains.find(old, { orgId, domain, proof });
    if (kept?.verifiedAt == null) await verifiedDomains.delete(tx, { id });
  }
}
