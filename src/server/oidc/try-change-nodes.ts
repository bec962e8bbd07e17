// Changes a user's nodes in one organization because of the groups at a provider. A refusal is logged, and does not prevent
// the sign-in. The next sign-in tries again.

import { AppError, messageOf } from "../../base/errors.ts";
import type { ServerOptions } from "../options.ts";
import type { Transaction } from "../store/database.ts";

export async function tryChangeNodes(
  { db, log }: Pick<ServerOptions, "db" | "log">,
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
