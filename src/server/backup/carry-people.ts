// Carries which users' nodes are in groups into the restored backup: a user is in a group where both databases say so.

import { makeOwnerGroups, readGroupPeople } from "../policy/group-people.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { ownerOf } from "../../owner-group.ts";
import { queryAll } from "../store/table.ts";
import { groupPeople } from "../store/tables/group-people.ts";
import { memberships } from "../store/tables/memberships.ts";
import { nodes } from "../store/tables/nodes.ts";

const pick = nodes.pick("id", "ownerId", "ownerGroups");

/** The caller has carried nodes, with their certificates, and members before. */
export async function carryPeople(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  for (const { id, name, people } of await groupPeople.all(tx, { orgId })) {
    const isKept = (await groupPeople.find(old, { orgId, name, people })) !== undefined;
    const isMember = (await memberships.find(tx, { orgId, userId: ownerOf(people) ?? 0 })) !== undefined;
    if (!isKept || !isMember) await groupPeople.delete(tx, { id });
  }
  const groupsOf = makeOwnerGroups(await readGroupPeople(tx, orgId));
  const owned = `SELECT ${pick.select()} FROM nodes WHERE org_id = $1 AND (owner_id IS NOT NULL OR owner_groups <> '[]')`;
  for (const { id, ownerId, ownerGroups } of await queryAll(tx, pick, owned, [orgId])) {
    const after = ownerId === null ? [] : groupsOf(ownerId);
    if (after.join() !== ownerGroups.join()) await nodes.update(tx, { id }, { ownerGroups: after });
  }
}
