// Gives the groups that a provider reports for a user to the user's nodes, where the policy names them: after each
// sign-in and each request to the provider.

import { regroupOwned } from "../nodes/owner-groups.ts";
import type { ServerOptions } from "../options.ts";
import { providerGroups } from "../store/tables/providers.ts";
import { tryChangeNodes } from "./try-change-nodes.ts";

type Services = Pick<ServerOptions, "db" | "log" | "system">;

/** The caller has stored the groups. */
export async function applyProviderGroups(
  services: Services,
  { id: providerId }: { id: number },
  userId: number,
): Promise<void> {
  const named = await providerGroups.all(services.db, { providerId });
  for (const orgId of new Set(named.map((each) => each.orgId))) {
    await tryChangeNodes(services, { orgId, userId }, (tx) =>
      regroupOwned(tx, orgId, services.system.now(), { ownerId: userId }),
    );
  }
}
