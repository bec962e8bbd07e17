// Carries which users' nodes are in groups into the restored backup: a user, or a group of a provider,
// is in a group where both databases say so.

import { readOwnerGroups } from "../policy/group-people.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { ownerOf } from "../../owner-group.ts";
import { queryAll } from "../store/table.ts";
import { groupPeople } from "../store/tables/group-people.ts";
import { memberships } from "../store/tables/memberships.ts";
import { providerGroups } from "../store/tables/provider-groups.ts";
import { nodes } from "../store/tables/nodes.ts";

const pick = nodes.pick("id", "ownerId", "ownerGroups");

/** The caller has carried nodes, with their certificates, and members before. */
export async function carryPeople(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  for (const { id, name, people } of await groupPeople.all(tx, { orgId })) {
    const isKept = (await groupPeople.find(old, { orgId, name, people })) !== undefined;
    const userId = ownerOf(people);
    const isThere =
      userId === undefined
        ? (await providerGroups.find(old, { orgId, people })) !== undefined
        : (await memberships.find(tx, { orgId, userId })) !== undefined;
    if (!isKept || !isThere) await groupPeople.delete(tx, { id });
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
