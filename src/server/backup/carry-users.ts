// Carries what users, members and providers of identities lost since the backup into the restored database.

import type { Reader, Transaction } from "../store/database.ts";
import { userOfGroup } from "../../protocol/users-groups.ts";
import { queryAll } from "../store/table.ts";
import { memberships, verifiedDomains } from "../store/tables/organizations.ts";
import { nodes } from "../store/tables/nodes.ts";
import {
  groupUsers,
  identities,
  identityProviders,
  organizationIdentities,
  providerGroups,
} from "../store/tables/providers.ts";
import { users } from "../store/tables/users.ts";
import { readOwnerGroups } from "../policy/group-users.ts";

/** An invitation survives only with the same link. A membership that is only an invitation in `old` is deleted. */
export async function carryMembers(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  for (const { id, email, secretHash } of await memberships.all(tx, { orgId })) {
    const kept = await memberships.find(old, { orgId, email });
    if (kept?.secretHash === secretHash) await memberships.update(tx, { id }, { role: kept.role });
    else await memberships.delete(tx, { id });
  }
}

export async function carryUsers(old: Reader, tx: Transaction): Promise<void> {
  for (const { email, createdAt, isActive, isStaff, passwordHash } of await users.all(old, {})) {
    await users.update(tx, { email, createdAt }, { isActive, isStaff, passwordHash });
  }
}

const pick = nodes.pick("id", "ownerId", "ownerGroups");

/**
 * A user, or a group of a provider, stays in a group where both databases say so. The caller has carried nodes, with their
 * certificates, and members before.
 */
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

/**
 * What was deleted, or restricted, after the backup stays so: a deleted provider must not sign in any user again. Tokens of
 * providers are not in `tx` any more.
 */
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
