// At each sign-in, gives the user's own nodes the groups that the provider maps to the user's groups. On these nodes, the
// provider alone decides about a mapped group. Nodes of the organization keep what administrators gave them.

import type { Authorities } from "../certificates/authorities.ts";
import { ourselves, record } from "../audit/record.ts";
import { changeNode } from "../nodes/nodes.ts";
import type { ServerOptions } from "../options.ts";
import type { Transaction } from "../store/database.ts";
import type { IdentityProviderRow } from "../store/tables/providers.ts";
import { memberships } from "../store/tables/organizations.ts";
import { nodes } from "../store/tables/nodes.ts";
import { tryChangeNodes } from "./try-change-nodes.ts";

export type NodeGroupServices = Pick<ServerOptions, "db" | "system" | "secretKey" | "log"> & {
  authorities: Authorities;
};
type Provider = Pick<IdentityProviderRow, "nodeGroups" | "orgId">;

/** `groups`: the user's groups at the provider. A provider of an organization decides in that organization only. */
export async function applyNodeGroups(
  services: NodeGroupServices,
  provider: Provider,
  userId: number,
  groups: readonly string[],
): Promise<void> {
  const effective = provider.nodeGroups.filter(
    ({ orgId }) => provider.orgId === null || provider.orgId === orgId,
  );
  for (const [orgId, mappings] of Map.groupBy(effective, (each) => each.orgId)) {
    const decidedGroups = new Set(mappings.map(({ nodeGroup }) => nodeGroup));
    const givenGroups = new Set(
      mappings.filter(({ group }) => groups.includes(group)).map(({ nodeGroup }) => nodeGroup),
    );
    await tryChangeNodes(services, { orgId, userId }, (tx) =>
      regroup(tx, services, { orgId, userId, decidedGroups, givenGroups }),
    );
  }
}

type Regrouping = {
  orgId: number;
  userId: number;
  decidedGroups: ReadonlySet<string>;
  givenGroups: ReadonlySet<string>;
};

async function regroup(
  tx: Transaction,
  services: NodeGroupServices,
  { orgId, userId, decidedGroups, givenGroups }: Regrouping,
): Promise<void> {
  const isMember = (await memberships.find(tx, { orgId, userId })) !== undefined;
  for (const node of await nodes.all(tx, { orgId, ownerId: userId })) {
    const others = node.groups.filter((group) => !decidedGroups.has(group));
    const next = isMember ? [...others, ...givenGroups] : others;
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
