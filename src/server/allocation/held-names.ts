// Names that nodes gave up. Peers may still grant a name the rights of its former node, so an ordinary registration token
// gets it only after holds.ts has released it. One row per former node: two nodes may have had the same name.

import type { Reader, Transaction } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { heldNames, type NodeRow } from "../store/tables/nodes.ts";

/**
 * Rows of deleted nodes and aliases stay for so many versions of the organization's names (`names_version`), so that nodes learn what
 * is gone. A node that has missed more gets the whole list.
 */
export const keptVersions = 5000;

type NamedNode = Pick<NodeRow, "id" | "orgId" | "name">;

/**
 * Holds the node's name until every active node has confirmed `version` (null: not known yet) and the node's last
 * node.crt has expired.
 */
export async function holdName(tx: Transaction, node: NamedNode, version: number | null): Promise<void> {
  await tx.run(
    `INSERT INTO held_names (org_id, name, node_id, held_version, held_until)
     VALUES ($1, $2, $3, $4,
       (SELECT coalesce(max(not_after), 0) FROM certificates WHERE node_id = $3 AND kind = 'x509'))
     ON CONFLICT (org_id, name, node_id) DO UPDATE
       SET held_version = excluded.held_version, held_until = excluded.held_until, free_at = NULL`,
    [node.orgId, node.name, node.id, version],
  );
}

/** Holds the name of an ephemeral node until its certificates end: no rule can name it, so no peer has to confirm anything. */
export async function holdUntil(tx: Transaction, node: NamedNode, until: number): Promise<void> {
  const row = { orgId: node.orgId, name: node.name, nodeId: node.id, heldUntil: until, freeAt: until };
  await heldNames.upsert(
    tx,
    row,
    `ON CONFLICT (org_id, name, node_id) DO UPDATE
       SET held_version = NULL, held_until = excluded.held_until, free_at = excluded.free_at`,
  );
}

/** The node has its former name again. The same name stays held for other former nodes. */
export async function releaseOwnName(tx: Transaction, { orgId, name, id }: NamedNode): Promise<void> {
  await heldNames.delete(tx, { orgId, name, nodeId: id });
}

const holdPick = heldNames.pick("heldVersion", "heldUntil", "freeAt");
/** Why a name is not free. */
export type NameHold = ReturnType<typeof holdPick.parse>;

export async function holdsOf(reader: Reader, orgId: number, name: string): Promise<NameHold[]> {
  const sql = `SELECT ${holdPick.select()} FROM held_names WHERE org_id = $1 AND name = $2`;
  return queryAll(reader, holdPick, sql, [orgId, name]);
}
