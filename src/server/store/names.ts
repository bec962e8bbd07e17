// Names that nodes gave up. Others may still grant a name the rights of the node that had it, so an ordinary
// registration token gets it only when holds.ts has released it. A row per former node: two may have had one name.

import { numberOf, numberOrNull, type Reader, type Transaction } from "./database.ts";

type Named = { id: number; orgId: number; name: string };

/** Holds the node's name until every active node has confirmed `version` (null: not known yet) and its last node.crt ends. */
export async function holdName(tx: Transaction, node: Named, version: number | null): Promise<void> {
  await tx.run(
    `INSERT INTO held_names (org_id, name, node_id, held_version, held_until)
     VALUES ($1, $2, $3, $4,
       (SELECT coalesce(max(not_after), 0) FROM certificates WHERE node_id = $3 AND kind = 'x509'))
     ON CONFLICT (org_id, name, node_id) DO UPDATE
       SET held_version = excluded.held_version, held_until = excluded.held_until, free_at = NULL`,
    [node.orgId, node.name, node.id, version],
  );
}

/** The node has its former name again. What another node had under this name stays held. */
export async function takeNameBack(tx: Transaction, { orgId, name, id }: Named): Promise<void> {
  await tx.run("DELETE FROM held_names WHERE org_id = $1 AND name = $2 AND node_id = $3", [orgId, name, id]);
}

/** Why a name is not free. */
export type NameHold = {
  /** The version that the active nodes have to confirm; null where its number is not known yet. */
  version: number | null;
  /** All have confirmed it. */
  isConfirmed: boolean;
  /** When the last node.crt of the name ends, ms. */
  until: number;
};

export async function holdsOf(reader: Pick<Reader, "all">, orgId: number, name: string): Promise<NameHold[]> {
  const rows = await reader.all(
    "SELECT held_version, held_until, free_at FROM held_names WHERE org_id = $1 AND name = $2",
    [orgId, name],
  );
  return rows.map((row) => ({
    version: numberOrNull(row, "held_version"),
    isConfirmed: row["free_at"] !== null,
    until: numberOf(row, "held_until"),
  }));
}
