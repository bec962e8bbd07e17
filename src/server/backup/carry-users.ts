// Carries the rights, factors and identities that were taken away since the backup into the restored database, so that they do not
// come back. `old` is the replaced database, `replaced` a row of it, and `tx` the restored database.

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
import { passkeys, recoveryCodes, totpSecrets, users } from "../store/tables/users.ts";
import { readOwnerGroups } from "../policy/group-users.ts";

/**
 * An invitation survives only with the same link. A membership that is only an invitation in `old` is deleted. `secretHash`: of the
 * link; null for a member.
 */
export async function carryMembers(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  for (const { id, email, secretHash } of await memberships.all(tx, { orgId })) {
    const replaced = await memberships.find(old, { orgId, email });
    if (replaced?.secretHash === secretHash) await memberships.update(tx, { id }, { role: replaced.role });
    else await memberships.delete(tx, { id });
  }
}

export async function carryUsers(old: Reader, tx: Transaction): Promise<void> {
  /** The users that both databases have. */
  const both: number[] = [];
  // Not by address: a provider may have changed that of a user who is bound to an organization. With the time of creation, in case both
  // databases gave one id to different users.
  for (const { id, createdAt, isActive, isStaff, passwordHash } of await users.all(old, {}))
    if ((await users.update(tx, { id, createdAt }, { isActive, isStaff, passwordHash })) > 0) both.push(id);
  const carryFactors = async <Row>(factors: FactorsOf<Row>) => {
    // Delete those of all users first: a passkey of the backup may belong to another user in `old`.
    for (const userId of both) await factors.delete(tx, { userId });
    for (const userId of both)
      for (const row of await factors.all(old, { userId })) await factors.insert(tx, row);
  };
  // As they were last, like the password: what was removed or used stays so, and a factor that was added since counts.
  await carryFactors(passkeys);
  await carryFactors(totpSecrets);
  await carryFactors(recoveryCodes);
}

type FactorsOf<Row> = {
  all(reader: Reader, where: { userId: number }): Promise<Row[]>;
  insert(tx: Transaction, row: Row): Promise<void>;
  delete(tx: Transaction, where: { userId: number }): Promise<number>;
};

/** An identity that was unlinked after the backup signs nobody in, and gives no group that its user has lost. */
export async function carryIdentities(old: Reader, tx: Transaction): Promise<void> {
  for (const { id, userId, issuer, subject } of await identities.all(tx, {})) {
    const replaced = await identities.find(old, { userId, issuer, subject });
    if (replaced === undefined) await identities.delete(tx, { id });
    else await identities.update(tx, { id }, { groups: replaced.groups });
  }
  for (const { id, userId, providerId, subject } of await organizationIdentities.all(tx, {})) {
    const replaced = await organizationIdentities.find(old, { userId, providerId, subject });
    if (replaced === undefined) await organizationIdentities.delete(tx, { id });
    else await organizationIdentities.update(tx, { id }, { groups: replaced.groups });
  }
}

const ownedPick = nodes.pick("id", "ownerId", "ownerGroups");

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
  // Also nodes that have no owner now, but groups of a former one: these end.
  const owned = `SELECT ${ownedPick.select()} FROM nodes WHERE org_id = $1 AND (owner_id IS NOT NULL OR owner_groups <> '[]')`;
  for (const { id, ownerId, ownerGroups } of await queryAll(tx, ownedPick, owned, [orgId])) {
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
    const replaced = await identityProviders.find(old, { id, issuer, createdAt });
    if (replaced === undefined) {
      await organizationIdentities.delete(tx, { providerId: id });
      await identities.delete(tx, { providerId: id });
      await identityProviders.delete(tx, { id });
      continue;
    }
    // Without its name, which another provider of the backup may have.
    const { name: _, ...settings } = replaced;
    await identityProviders.update(tx, { id }, settings);
  }
  for (const { id, orgId, domain, proof } of await verifiedDomains.all(tx, {})) {
    const replaced = await verifiedDomains.find(old, { orgId, domain, proof });
    if ((replaced?.verifiedAt ?? null) === null) await verifiedDomains.delete(tx, { id });
  }
}
