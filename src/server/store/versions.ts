// Configuration versions. Each organization has one counter, so versions only rise. A change for all nodes takes a
// number for the organization, a change for one node takes one for that node. A node's version is the higher of the two.

import { notFound } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import { requireLockOf, type Reader, type Transaction } from "./database.ts";
import { computed, integer, queryAll, queryNumber, queryOne } from "./table.ts";
import { organizations } from "./tables/organizations.ts";

const versionsPick = organizations.pick("configVersion", "lastVersion");
export type Versions = ReturnType<typeof versionsPick.parse>;

const raiseShared = `UPDATE organizations SET last_version = last_version + 1, config_version = last_version + 1
  WHERE id = $1 RETURNING config_version AS n`;

/** Raises the version of all nodes and wakes them after the commit. Returns the new version. */
export async function raiseConfigVersion(tx: Transaction, orgId: number): Promise<number> {
  requireLockOf(tx, orgId);
  const version = await queryNumber(tx, raiseShared, [orgId]);
  await tx.notify("organization", String(orgId));
  return version;
}

/** The version of the organization. Throws not_found. */
export async function readConfigVersion(reader: Reader, orgId: number): Promise<number> {
  return (await readVersions(reader, orgId)).configVersion;
}

/** The version of the organization, and the highest that any of its nodes can have. Throws not_found. */
export async function readVersions(reader: Reader, orgId: number): Promise<Versions> {
  const sql = `SELECT ${versionsPick.select()} FROM organizations WHERE id = $1`;
  const row = await queryOne(reader, versionsPick, sql, [orgId]);
  if (row === undefined) throw new AppError("not_found", notFound.organization);
  return row;
}

/** The highest version that any node of the organization can have. */
export async function readLastVersion(reader: Reader, orgId: number): Promise<number> {
  return queryNumber(reader, "SELECT last_version AS n FROM organizations WHERE id = $1", [orgId]);
}

const raiseLast =
  "UPDATE organizations SET last_version = last_version + 1 WHERE id = $1 RETURNING last_version AS n";

/** A version for some nodes, which the caller gives to them. */
export async function takeVersion(tx: Transaction, orgId: number): Promise<number> {
  requireLockOf(tx, orgId);
  return queryNumber(tx, raiseLast, [orgId]);
}

/** Raises the version of one node and wakes only this node: other nodes fetch and confirm nothing. Returns the new version. */
export async function raiseOwnVersion(tx: Transaction, orgId: number, nodeId: number): Promise<number> {
  requireLockOf(tx, orgId);
  const take = `UPDATE nodes SET own_version = (SELECT last_version FROM organizations WHERE id = $1) WHERE id = $2`;
  // Sent together: one connection runs them in this order.
  const [ownVersion] = await Promise.all([
    queryNumber(tx, raiseLast, [orgId]),
    tx.run(take, [orgId, nodeId]),
  ]);
  await notifyNode(tx, orgId, nodeId);
  return ownVersion;
}

/** Drops what servers cache about the node and wakes its long polls. */
export async function notifyNode(tx: Transaction, orgId: number, nodeId: number): Promise<void> {
  await tx.notify("node", `${orgId}/${nodeId}`);
}

/** Above this number of nodes, one notice for the organization costs less than one for each node. */
const maxNoticed = 500;

/** The same for many nodes. */
export async function notifyNodes(tx: Transaction, orgId: number, ids: readonly number[]): Promise<void> {
  if (ids.length <= maxNoticed) {
    for (const id of ids) await notifyNode(tx, orgId, id);
    return;
  }
  // The first makes servers read their cached nodes again; the second wakes the polls.
  await tx.notify("auth", `organization ${orgId}`);
  await tx.notify("organization", String(orgId));
}

/** Wakes nodes that know a deadline for their confirmation: another setting changes it. */
export async function notifyNodesWithDeadline(tx: Transaction, orgId: number): Promise<void> {
  const sql = `SELECT p.node_id FROM owner_proofs p JOIN nodes n ON n.id = p.node_id
    WHERE n.org_id = $1 AND p.told_at IS NOT NULL`;
  const nodes = await queryAll(tx, computed({ nodeId: integer() }), sql, [orgId]);
  for (const { nodeId } of nodes) await notifyNode(tx, orgId, nodeId);
}

/** A new version of the names, for the changes of this transaction. The commit wakes waiting nodes. */
export async function raiseNamesVersion(tx: Transaction, orgId: number): Promise<number> {
  requireLockOf(tx, orgId);
  const raise = `UPDATE organizations SET names_version = names_version + 1 WHERE id = $1
    RETURNING names_version AS n`;
  const version = await queryNumber(tx, raise, [orgId]);
  await tx.notify("names", String(orgId));
  return version;
}
