// Releases the names and addresses that nodes gave up. Both wait until every active node has confirmed the version that
// forgets them; a node whose own certificate has ended is not waited for, since no peer talks to it. Then a name waits
// for the end of its last node.crt, an address for the end of open flows: the engine knows a flow by its addresses.

import { numberOf, numberOrNull, textOf, type Reader, type Transaction } from "./database.ts";

const unsettledAddress = "held_until IS NOT NULL AND free_at IS NULL";

/**
 * The certificates that the node had until now are blocked by `version`: what it gave up before, and what waited for
 * that, is forgotten with it.
 */
export async function boundHolds(tx: Transaction, nodeId: number, version: number): Promise<void> {
  for (const table of ["held_names", "addresses"]) {
    await tx.run(
      `UPDATE ${table} SET held_version = $2
       WHERE node_id = $1 AND held_until IS NOT NULL AND held_version IS NULL AND free_at IS NULL`,
      [nodeId, version],
    );
  }
}

/** The organizations that hold anything. */
export async function organizationsWithHolds(reader: Pick<Reader, "all">): Promise<number[]> {
  const rows = await reader.all(
    `SELECT org_id FROM held_names UNION SELECT org_id FROM addresses WHERE held_until IS NOT NULL`,
  );
  return rows.map((row) => numberOf(row, "org_id"));
}

/** Whether `releaseHolds` has anything to do: a few looks into an index, however much is held. */
export async function mayRelease(
  reader: Pick<Reader, "get" | "all">,
  orgId: number,
  now: number,
): Promise<boolean> {
  const due = await reader.get(
    `SELECT org_id FROM held_names WHERE org_id = $1 AND free_at <= $2
     UNION ALL SELECT org_id FROM addresses WHERE org_id = $1 AND free_at <= $2
     UNION ALL SELECT org_id FROM addresses WHERE org_id = $1 AND held_until < $2 AND ${unsettledAddress} LIMIT 1`,
    [orgId, now],
  );
  if (due !== undefined) return true;
  const lowest = await reader.get(
    `SELECT min(version) AS version FROM (
       SELECT min(held_version) AS version FROM held_names WHERE org_id = $1 AND free_at IS NULL
       UNION ALL SELECT min(held_version) FROM addresses WHERE org_id = $1 AND ${unsettledAddress}) held`,
    [orgId],
  );
  const version = numberOrNull(lowest ?? {}, "version");
  return version !== null && (await nodesBehind(reader, orgId, version, now, 1)).length === 0;
}

const isAlive = `EXISTS (SELECT 1 FROM certificates c
  WHERE c.node_id = n.id AND c.kind = 'overlay' AND c.state <> 'blocked' AND c.not_after > $2)`;

/** Active nodes with a valid certificate that have not confirmed the version yet, the latest first: `limit` at most. */
export async function nodesBehind(
  reader: Pick<Reader, "all">,
  orgId: number,
  version: number,
  now: number,
  limit: number,
): Promise<string[]> {
  // Nodes that were away for months are at the other end of the index.
  const rows = await reader.all(
    `SELECT n.name FROM nodes n
     WHERE n.org_id = $1 AND n.state = 'active' AND n.confirmed_config_version < $3 AND ${isAlive}
     ORDER BY n.confirmed_config_version DESC LIMIT $4`,
    [orgId, now, version, limit],
  );
  return rows.map((row) => textOf(row, "name"));
}

/** The version that all who are waited for have in force; without nodes any version is. */
async function confirmedByAll(reader: Pick<Reader, "get">, orgId: number, now: number): Promise<number> {
  const row = await reader.get(
    `SELECT n.confirmed_config_version AS version FROM nodes n
     WHERE n.org_id = $1 AND n.state = 'active' AND ${isAlive} ORDER BY n.confirmed_config_version LIMIT 1`,
    [orgId, now],
  );
  return row === undefined ? Number.MAX_SAFE_INTEGER : numberOf(row, "version");
}

/** Frees what is due. `flowMs`: how long a flow stays open without a packet. */
export async function releaseHolds(
  tx: Transaction,
  orgId: number,
  now: number,
  flowMs: () => Promise<number>,
): Promise<void> {
  const confirmed = await confirmedByAll(tx, orgId, now);
  await tx.run(
    `UPDATE held_names SET free_at = CASE WHEN held_until > $3 THEN held_until ELSE $3 END
     WHERE org_id = $1 AND free_at IS NULL AND held_version <= $2`,
    [orgId, confirmed, now],
  );
  await tx.run("DELETE FROM held_names WHERE org_id = $1 AND free_at <= $2", [orgId, now]);
  const settled = `org_id = $1 AND ${unsettledAddress} AND (held_version <= $2 OR held_until < $3)`;
  if (
    (await tx.get(`SELECT host FROM addresses WHERE ${settled} LIMIT 1`, [orgId, confirmed, now])) !==
    undefined
  ) {
    await tx.run(`UPDATE addresses SET free_at = $4 WHERE ${settled}`, [
      orgId,
      confirmed,
      now,
      now + (await flowMs()),
    ]);
  }
  await tx.run(
    `UPDATE addresses SET node_id = NULL, held_version = NULL, held_until = NULL, free_at = NULL
     WHERE org_id = $1 AND free_at <= $2`,
    [orgId, now],
  );
}
