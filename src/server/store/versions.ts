// Configuration versions: numbers drawn from one counter of the organization, so that they only rise. What concerns all
// nodes takes one for the organization, what concerns one node alone takes one for that node; a node's version is the
// higher of the two, and only the nodes concerned are woken.

import { numberOf, type Transaction } from "./database.ts";

/** For all nodes of the organization; they are woken once it is committed. The new version. */
export async function raiseConfigVersion(tx: Transaction, orgId: number): Promise<number> {
  const row = await tx.get(
    `UPDATE organizations SET last_version = last_version + 1, config_version = last_version + 1
     WHERE id = $1 RETURNING config_version`,
    [orgId],
  );
  await tx.notify("organization", String(orgId));
  return numberOf(row ?? {}, "config_version");
}

export async function readConfigVersion(tx: Transaction, orgId: number): Promise<number> {
  const row = await tx.get("SELECT config_version FROM organizations WHERE id = $1", [orgId]);
  return numberOf(row ?? {}, "config_version");
}

/**
 * A change that only one node has to take up. The organization's version rises, since something was changed; but the
 * others' polls go on, and they learn the number with their next check-in, where nothing else is new for them.
 */
export async function raiseForNode(tx: Transaction, orgId: number, nodeId: number): Promise<number> {
  const row = await tx.get(
    `UPDATE organizations SET last_version = last_version + 1, config_version = last_version + 1
     WHERE id = $1 RETURNING config_version`,
    [orgId],
  );
  await tellNode(tx, orgId, nodeId);
  return numberOf(row ?? {}, "config_version");
}

/** For one node, which alone is concerned and woken: a renewal. The new version. */
export async function raiseOwnVersion(tx: Transaction, orgId: number, nodeId: number): Promise<number> {
  const row = await tx.get(
    "UPDATE organizations SET last_version = last_version + 1 WHERE id = $1 RETURNING last_version",
    [orgId],
  );
  const version = numberOf(row ?? {}, "last_version");
  await tx.run("UPDATE nodes SET own_version = $2 WHERE id = $1", [nodeId, version]);
  await tellNode(tx, orgId, nodeId);
  return version;
}

/** Whatever is kept in memory about the node is read again, and its polls look again. */
export async function tellNode(tx: Transaction, orgId: number, nodeId: number): Promise<void> {
  await tx.notify("node", `${orgId}/${nodeId}`);
}
