// The groups of nodes that the groups of an identity give to the user's own nodes, at each sign-in. A group of nodes that the
// provider may give is decided by it alone, for these nodes; nodes of the organization keep what administrators gave.

import type { Authorities } from "../certificates/authorities.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { ourselves, record } from "../audit/record.ts";
import { changeNode } from "../nodes/nodes.ts";
import type { ServerOptions } from "../options.ts";
import type { Transaction } from "../store/database.ts";
import type { IdentityProviderRow } from "../store/tables/providers.ts";
import { memberships } from "../store/tables/organizations.ts";
import { nodes } from "../store/tables/nodes.ts";

export type NodeGroupServices = Pick<ServerOptions, "db" | "system" | "secretKey" | "log"> & {
  authorities: Authorities;
};
type Provider = Pick<IdentityProviderRow, "nodeGroups" | "orgId">;

/** A failure in one organization is logged, and does not prevent the sign-in. The next sign-in tries again. */
export async function changeOwnNodes(
  { db, log }: Pick<NodeGroupServices, "db" | "log">,
  { orgId, userId }: { orgId: number; userId: number },
  work: (tx: Transaction) => Promise<void>,
): Promise<void> {
  await db.writeFor({ org: orgId }, work).catch((error: unknown) => {
    if (!(error instanceof AppError)) throw error;
    log.warn("Cannot give the groups of a provider to a user's nodes", {
      organization: orgId,
      user: userId,
      reason: messageOf(error),
    });
  });
}

export async function applyNodeGroups(
  services: NodeGroupServices,
  provider: Provider,
  userId: number,
  groups: readonly string[],
): Promise<void> {
  const own = provider.nodeGroups.filter(({ orgId }) => orgId === (provider.orgId ?? orgId));
  for (const [orgId, mappings] of Map.groupBy(own, (each) => each.orgId)) {
    const decided = new Set(mappings.map(({ nodeGroup }) => nodeGroup));
    const given = new Set(
      mappings.filter(({ group }) => groups.includes(group)).map(({ nodeGroup }) => nodeGroup),
    );
    await changeOwnNodes(services, { orgId, userId }, (tx) =>
      regroup(tx, services, { orgId, userId, decided, given }),
    );
  }
}

type Regrouping = {
  orgId: number;
  userId: number;
  decided: ReadonlySet<string>;
  given: ReadonlySet<string>;
};

async function regroup(
  tx: Transaction,
  services: NodeGroupServices,
  { orgId, userId, decided, given }: Regrouping,
): Promise<void> {
  const isMember = (await memberships.find(tx, { orgId, userId })) !== undefined;
  for (const node of await nodes.all(tx, { orgId, ownerId: userId })) {
    const others = node.groups.filter((group) => !decided.has(group));
    const next = isMember ? [...others, ...given] : others;
    if (new Set(next).symmetricDifference(new Set(node.groups)).size === 0) continue;
    if (node.state === "revoked") {
      // A revoked node has no certificate, but a restore must not bring back groups that its owner has lost.
      await nodes.update(tx, { id: node.id }, { groups: next });
      continue;
    }
    const org = { id: orgId };
    const { updated, issued } = await changeNode(tx, services, org, node.id, { groups: next }, ourselves);
    await record(tx, [updated, ...issued]);
  }
}
