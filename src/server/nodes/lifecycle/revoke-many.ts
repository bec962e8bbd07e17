// Revokes all nodes of an organization before it is deleted, each with its signed order.

import { AppError } from "../../../base/errors.ts";
import type { Actor } from "../../audit/record.ts";
import { revokeNode } from "./revoke.ts";
import type { ServerOptions } from "../../options.ts";
import { queryAll } from "../../store/table.ts";
import { nodes } from "../../store/tables/nodes.ts";

type Store = Pick<ServerOptions, "db" | "system" | "secretKey">;
type Org = { id: number; slug: string };

/** Concurrent transactions share one commit. */
const concurrency = 64;

/** A node that a concurrent request has revoked counts as done. */
export async function revokeAllNodes(store: Store, org: Org, actor: Actor, reason: string): Promise<void> {
  const sql = "SELECT id FROM nodes WHERE org_id = $1 AND state <> 'revoked' ORDER BY id";
  const rows = await queryAll(store.db, nodes.pick("id"), sql, [org.id]);
  for (let at = 0; at < rows.length; at += concurrency) {
    await Promise.all(
      rows.slice(at, at + concurrency).map(({ id }) =>
        revokeNode(store, org, id, actor, reason).catch((error: unknown) => {
          if (!(error instanceof AppError && error.code === "not_found")) throw error;
        }),
      ),
    );
  }
}
