// Brings the groups that nodes have by their owner up to date: after a policy was applied, when a user leaves, and when a
// provider of identities says other groups of the user.

import { readOwnerGroups } from "../policy/group-users.ts";
import type { Transaction } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { changeGroups, groupedNode, type Regrouped } from "./change-groups.ts";

const pageSize = 1000;
/**
 * $2: the owner, or 0 for all owners. $3: the last id of the page before. Includes revoked nodes: a restore must not bring back
 * groups that the owner has lost.
 */
const ownedNodes = `SELECT ${groupedNode.select()} FROM nodes
  WHERE org_id = $1 AND id > $3 AND owner_id IS NOT NULL AND ($2 = 0 OR owner_id = $2) ORDER BY id LIMIT ${pageSize}`;

const noGroups: ReadonlySet<string> = new Set();

/**
 * Updates the nodes of one owner, or of all owners (`ownerId` 0). `taken`: groups that were given to nodes directly, and that they
 * lose. `isBounded`: throws too_many_certificates if a node gains groups, and may get no more certificates.
 */
export async function regroupOwned(
  tx: Transaction,
  orgId: number,
  now: number,
  { ownerId = 0, taken = noGroups, isBounded = true } = {},
): Promise<void> {
  const groupsOf = await readOwnerGroups(tx, orgId, ownerId === 0 ? undefined : ownerId);
  const changed: Regrouped[] = [];
  for (let lastId = 0; ;) {
    const page = await queryAll(tx, groupedNode, ownedNodes, [orgId, ownerId, lastId]);
    for (const before of page) {
      const ownerGroups = before.ownerId === null ? [] : groupsOf(before.ownerId);
      const groups = before.groups.filter((group) => !taken.has(group));
      if (ownerGroups.join() !== before.ownerGroups.join() || groups.length < before.groups.length)
        changed.push({ before, after: { ...before, ownerGroups, groups } });
    }
    if (page.length < pageSize) break;
    lastId = page.at(-1)?.id ?? lastId;
    // Lets other requests read meanwhile.
    await tx.pause();
  }
  await changeGroups(tx, orgId, changed, now, { isBounded });
}
