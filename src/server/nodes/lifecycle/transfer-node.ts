// Gives a node to a user or to the organization. Nodes of a user are listed, and on request revoked, when the user
// leaves (offboarding/end-access.ts).

import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import type { Transfer } from "../../../api/nodes.ts";
import type { Node } from "../../../protocol/node.ts";
import { issuedEvents, record, type Actor } from "../../audit/record.ts";
import { writeAsAdmin } from "../../require-role.ts";
import { groupsThatProvidersDecide, ownerGroupsOf } from "../../policy/group-users.ts";
import type { Transaction } from "../../store/database.ts";
import { readIssuingOrg } from "../../certificates/issue.ts";
import { raiseNamesVersion } from "../../store/versions.ts";
import { findNode, revokedNode, type NodeRecord } from "../../store/nodes.ts";
import { queryOne } from "../../store/table.ts";
import { memberships } from "../../store/tables/organizations.ts";
import { nodes } from "../../store/tables/nodes.ts";
import type { NodeStore } from "../node-store.ts";
import { beginPeriod } from "./owner-period.ts";
import { publishChange } from "../publish-change.ts";
import { showOne } from "../show-nodes.ts";
import { emailKey } from "../../../base/text.ts";
import type { Org } from "../../http/route.ts";

/**
 * Gives the node to a member or to the organization. Throws not_found for a revoked node, validation_failed for an owner who is no
 * member.
 */
export async function transferNode(
  services: NodeStore,
  org: Org,
  id: number,
  { owner }: Transfer,
  actor: Actor,
): Promise<Node> {
  const { db, system } = services;
  const moved = await writeAsAdmin(db, org.id, actor, async (tx) => {
    const node = await findNode(tx, org.id, id);
    if (node.state === "revoked") throw revokedNode(node);
    const ownerId = owner === null ? null : await memberOf(tx, org, owner);
    // `ownerKnown` is false for nodes of earlier versions, which recorded no owner: then even "the organization" is news.
    if (ownerId === node.ownerId && node.ownerKnown) return node;
    const ownership = {
      ownerId,
      ownerKnown: true,
      ownerGroups: await ownerGroupsOf(tx, org.id, ownerId),
      groups: await withoutGiven(tx, node),
    };
    const after = { ...node, ...ownership };
    await nodes.update(tx, { id }, ownership);
    // The new owner has a whole period before the node must be confirmed.
    await beginPeriod(tx, id, system.now(), "given");
    const fingerprint =
      node.state === "active" ? await publishTransfer(tx, services, node, after) : undefined;
    const losesGroups = ownership.groups.length < node.groups.length;
    const event = { orgId: org.id, at: system.now(), actor, subject: `node/${id}` };
    await record(tx, [
      {
        ...event,
        type: "node.transferred",
        before: { owner_id: node.ownerId, ...(losesGroups ? { groups: node.groups } : {}) },
        after: { owner_id: ownerId, ...(losesGroups ? { groups: ownership.groups } : {}) },
      },
      ...issuedEvents(event, fingerprint),
    ]);
    return findNode(tx, org.id, id);
  });
  return showOne(services, org, moved);
}

/**
 * Removes groups that the former owner's provider gave. The new owner's provider gives its own at the next sign-in.
 */
async function withoutGiven(
  tx: Transaction,
  { orgId, ownerId, groups }: Pick<NodeRecord, "orgId" | "ownerId" | "groups">,
): Promise<string[]> {
  if (ownerId === null) return groups;
  const decided = await groupsThatProvidersDecide(tx, orgId, ownerId);
  return groups.filter((group) => !decided.has(group));
}

/**
 * Issues the certificates with the groups of the new owner. Other nodes may see the node now, or no longer. Returns the fingerprint
 * of the new certificate, if there is one.
 */
async function publishTransfer(
  tx: Transaction,
  services: NodeStore,
  before: NodeRecord,
  after: NodeRecord,
): Promise<string | undefined> {
  if (before.ownerId === after.ownerId) return undefined;
  const issued = await publishChange(tx, services, await readIssuingOrg(tx, after.orgId), before, after);
  await nodes.update(tx, { id: after.id }, { namesVersion: await raiseNamesVersion(tx, after.orgId) });
  return issued;
}

async function memberOf(tx: Transaction, org: Org, email: string): Promise<number> {
  // An earlier version stored the domain of an address as it was typed.
  const found = await queryOne(
    tx,
    memberships.pick("userId"),
    `SELECT m.user_id FROM memberships m JOIN users u ON u.id = m.user_id AND u.is_active = 1
     WHERE m.org_id = $1 AND m.email IN ($2, $3)`,
    [org.id, emailKey(email), email],
  );
  if (found?.userId != null) return found.userId;
  throw new AppError("validation_failed", `${email} is not a member of ${org.slug} who can sign in.`, {
    errors: { owner: ["Enter the e-mail address of a member."] },
    hint: `Members of ${org.slug}: \`${brand.executable} admin member list ${org.slug}\`.`,
  });
}
