// Revokes the nodes that came by way of a token or a person, or all of an organization: each by the one path that
// revokes a node, so that each gets its order and every other node its blocklist.

import { AppError } from "../../errors.ts";
import type { Actor } from "../audit/record.ts";
import { revokeNode } from "./revoke.ts";
import type { Services } from "../services.ts";
import { numberOf, type Params } from "../store/database.ts";

type Store = Pick<Services, "db" | "system" | "secretKey">;
type Org = { id: number; slug: string };

/** Many share one commit when they come together. */
const atOnce = 64;

export function nodesOfToken({ db }: Store, org: Org, tokenId: number): Promise<number[]> {
  return ids(db, "registered_with = $2", [org.id, tokenId]);
}

/** Registered with the member's own sign-in, or with a token that the member made. */
export function nodesOfMember({ db }: Store, org: Org, userId: number): Promise<number[]> {
  return ids(
    db,
    `(registered_with IN (SELECT id FROM registration_tokens WHERE org_id = $1 AND created_by = $2)
      OR id IN (SELECT CAST(substr(subject, 6) AS BIGINT) FROM events
        WHERE org_id = $1 AND type = 'node.registered' AND actor LIKE $3))`,
    [org.id, userId, `{"kind":"person","id":${userId},%`],
  );
}

export function nodesOfOrganization({ db }: Store, org: Org): Promise<number[]> {
  return ids(db, "1 = 1", [org.id]);
}

async function ids(db: Services["db"], condition: string, params: Params): Promise<number[]> {
  const rows = await db.all(
    `SELECT id FROM nodes WHERE org_id = $1 AND state <> 'revoked' AND ${condition} ORDER BY id`,
    params,
  );
  return rows.map((row) => numberOf(row, "id"));
}

/** What somebody else has revoked meanwhile counts as done. */
export async function revokeNodes(
  store: Store,
  org: Org,
  nodeIds: readonly number[],
  actor: Actor,
  reason: string,
): Promise<void> {
  for (let at = 0; at < nodeIds.length; at += atOnce) {
    await Promise.all(
      nodeIds.slice(at, at + atOnce).map((id) =>
        revokeNode(store, org, id, actor, reason).catch((error: unknown) => {
          if (!(error instanceof AppError && error.code === "not_found")) throw error;
        }),
      ),
    );
  }
}
