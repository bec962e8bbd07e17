// Claiming a node that was created before: it gives the machine the node's groups and roles.

import type { OrganizationCall } from "../../http/route.ts";
import { ownerGroupsOf } from "../../policy/group-users.ts";
import type { Reader } from "../../store/database.ts";
import { queryOne } from "../../store/table.ts";
import { nodes, type NodeRow } from "../../store/tables/nodes.ts";

/** The node of this name, unless it was revoked. */
export const nodeOfName = (reader: Reader, orgId: number, name: string): Promise<NodeRow | undefined> =>
  queryOne(
    reader,
    nodes,
    `SELECT ${nodes.select()} FROM nodes WHERE org_id = $1 AND name = $2 AND state <> 'revoked'`,
    [orgId, name],
  );

/** Throws step_up_required if a node has this name: then the registration claims it, with its groups and roles. */
export async function requireFreshClaim(
  db: Reader,
  call: Pick<OrganizationCall, "org" | "requireFresh">,
  name: string,
): Promise<void> {
  if ((await nodeOfName(db, call.org.id, name)) !== undefined) await call.requireFresh();
}

/** As requireFreshClaim. Asks also if the policy gives groups to the user's nodes: the new node would get them. */
export async function requireFreshForNode(
  db: Reader,
  call: Pick<OrganizationCall, "org" | "caller" | "requireFresh">,
  name: string,
): Promise<void> {
  await requireFreshClaim(db, call, name);
  const { caller, org } = call;
  if (caller.kind === "person" && (await ownerGroupsOf(db, org.id, caller.userId)).length > 0)
    await call.requireFresh();
}
