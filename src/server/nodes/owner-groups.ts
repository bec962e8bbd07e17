// Brings the groups that nodes have by their owner up to date: after a policy was applied, when a user leaves, and when a
// provider of identities says other groups of the user.

import { readIssuingOrg } from "../certificates/issue.ts";
import type { Actor, AuditEvent } from "../audit/record.ts";
import { readOwnerGroups } from "../policy/group-people.ts";
import type { Transaction } from "../store/database.ts";
import { findNode } from "../store/nodes.ts";
import { queryAll } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { raiseNamesVersion } from "../store/versions.ts";
import type { NodeStore } from "./node-store.ts";
import { publishChange } from "./nodes.ts";

export type Regrouping = Pick<NodeStore, "authorities" | "secretKey" | "system">;

const pick = nodes.pick("id", "state", "ownerId", "ownerGroups");

/**
 * Of all owners, or of one. Nodes get certificates with the new groups; former ones that granted more are blocked, as after
 * any change of groups. Returns the events, for the caller to record.
 */
export async function regroupOwned(
  tx: Transaction,
  services: Regrouping,
  orgId: number,
  actor: Actor,
  ownerId: number | null = null,
): Promise<AuditEvent[]> {
  const groupsOf = await readOwnerGroups(tx, orgId, ownerId ?? undefined);
  // Revoked nodes too: a restored one must not bring back what its owner has lost.
  const sql = `SELECT ${pick.select()} FROM nodes
    WHERE org_id = $1 AND owner_id IS NOT NULL AND ($2 = 0 OR owner_id = $2) ORDER BY id`;
  const changed = (await queryAll(tx, pick, sql, [orgId, ownerId ?? 0])).flatMap((node) => {
    const ownerGroups = node.ownerId === null ? [] : groupsOf(node.ownerId);
    return ownerGroups.join() === node.ownerGroups.join() ? [] : [{ ...node, ownerGroups }];
  });
  if (changed.length === 0) return [];
  const org = await readIssuingOrg(tx, orgId);
  const namesVersion = await raiseNamesVersion(tx, orgId);
  const issued: AuditEvent[] = [];
  for (const { id, state, ownerGroups } of changed) {
    const before = state === "active" ? await findNode(tx, orgId, id) : undefined;
    await nodes.update(tx, { id }, { ownerGroups });
    if (before === undefined) continue;
    const fingerprint = await publishChange(tx, services, org, before, { ...before, ownerGroups });
    // The names that nodes see depend on groups.
    await nodes.update(tx, { id }, { namesVersion });
    if (fingerprint === undefined) continue;
    const event = { orgId, at: services.system.now(), actor, subject: `node/${id}` };
    issued.push({ ...event, type: "certificate.issued", after: { fingerprint } });
  }
  return issued;
}
