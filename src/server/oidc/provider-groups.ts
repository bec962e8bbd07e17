// The groups that a provider says of a user reach the user's nodes where the policy names them: after each sign-in, and when the
// provider was asked.

import { AppError, messageOf } from "../../errors.ts";
import { ourselves, record } from "../audit/record.ts";
import { regroupOwned, type Regrouping } from "../nodes/owner-groups.ts";
import type { ServerOptions } from "../options.ts";
import { providerGroups } from "../store/tables/provider-groups.ts";

type Services = Regrouping & Pick<ServerOptions, "db" | "log">;

/** The caller has stored the groups. A failure in one organization is logged, as the next sign-in tries again. */
export async function applyProviderGroups(
  services: Services,
  { id: providerId }: { id: number },
  userId: number,
): Promise<void> {
  const { db, log } = services;
  const named = await providerGroups.all(db, { providerId });
  for (const orgId of new Set(named.map((each) => each.orgId))) {
    const change = db.writeFor({ org: orgId }, async (tx) =>
      record(tx, await regroupOwned(tx, services, orgId, ourselves, userId)),
    );
    await change.catch((error: unknown) => {
      if (!(error instanceof AppError)) throw error;
      log.warn("Cannot give the groups of a provider to a user's nodes", {
        organization: orgId,
        user: userId,
        reason: messageOf(error),
      });
    });
  }
}
