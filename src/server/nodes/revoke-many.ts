// Revokes all nodes of an organization that is deleted: each with its order at once, since the organization's own end does
// not wait for them.

import { AppError } from "../../errors.ts";
import type { Actor } from "../audit/record.ts";
import { revokeNode } from "./revoke.ts";
import type { ServerOptions } from "../options.ts";
import { numberOf } from "../store/database.ts";

type Store = Pick<ServerOptions, "db" | "system" | "secretKey">;
type Org = { id: number; slug: string };

/** Many share one commit when they come together. */
const atOnce = 64;

/** A node that another request has revoked meanwhile counts as done. */
export async function revokeAllNodes(store: Store, org: Org, actor: Actor, reason: string): Promise<void> {
  const rows = await store.db.all(
    "SELECT id FROM nodes WHERE org_id = $1 AND state <> 'revoked' ORDER BY id",
    [org.id],
  );
  for (let at = 0; at < rows.length; at += atOnce) {
    await Promise.all(
      rows.slice(at, at + atOnce).map((row) =>
        revokeNode(store, org, numberOf(row, "id"), actor, reason).catch((error: unknown) => {
          if (!(error instanceof AppError && error.code === "not_found")) throw error;
        }),
      ),
    );
  }
}
