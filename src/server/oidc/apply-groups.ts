// Applies the groups that a provider reports for a user: roles, and groups of the user's nodes. After each sign-in,
// and after the hourly request to the provider.

import type { IdentityProviderRow } from "../store/tables/providers.ts";
import { applyRoles } from "./group-roles.ts";
import { applyNodeGroups, type NodeGroupServices } from "./node-groups.ts";
import { applyProviderGroups } from "./provider-groups.ts";

/** The caller has stored the groups. */
export async function applyGroups(
  services: NodeGroupServices,
  provider: IdentityProviderRow,
  user: { id: number; email: string },
  groups: readonly string[],
): Promise<void> {
  // First, because the groups below are only for nodes of members.
  await applyRoles(services, provider, user, groups);
  await applyNodeGroups(services, provider, user.id, groups);
  await applyProviderGroups(services, provider, user.id);
}
