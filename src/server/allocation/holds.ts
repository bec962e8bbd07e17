// Releases the names and addresses that nodes gave up. Both are held until every active node has confirmed the version
// that no longer contains them. A node without a valid certificate is not waited for: no peer accepts its packets. Then a
// name waits until its last node.crt expires, an address until open flows end: the engine knows a flow by its addresses.
//
// An engine removes an expired flow only while it handles packets of other flows, so an idle one still accepts it after any
// wait. Therefore nodes then get a version that makes engines check open flows by the certificate that the peer has now.
// The address is free when they have confirmed this version too.
//
// The states of an address (table `addresses`). Each state keeps the columns of the states before it:
//
//   state       column that begins it               ends with
//   free        node_id is null                     takeAddress (address-pool.ts)
//   taken       node_id                             leaveAddresses (address-pool.ts): the node is gone or has another address
//   held        held_until                          boundHolds, as soon as all certificates of the node are blocked
//   bounded     held_version: blocks them           releaseHolds: all have confirmed it, or held_until has passed (held, too)
//   settled     free_at: then open flows are over   recheckFlows, at free_at or later
//   rechecking  recheck_version: checks the flows   releaseHolds: all have confirmed it, or `isExpired`: free again
//
// `held_until` is the time at which the node's last certificate with the address expires. A node that takes its former
// address again ends the hold in any state (takeAddress). An address that no certificate named is free at once
// (freeAddresses). `is_quiet`: the node was ephemeral. Its end blocks no certificate, so its address usually goes from held to
// settled when its certificates have expired.
//
// Names (table `held_names`) have fewer states: held, bounded (`held_version`), settled (`free_at`), then the row is deleted.

import { lastHost, parseNetwork } from "../../base/ip.ts";
import { noHoldSql } from "./address-pool.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { computed, integer, queryAll, queryOne, text } from "../store/table.ts";
import { heldNames, nodes } from "../store/tables/nodes.ts";
import { raiseConfigVersion } from "../store/versions.ts";

/** Held or bounded. */
const unsettledAddress = "held_until IS NOT NULL AND free_at IS NULL";
/** Settled: the version that makes engines check open flows again is not raised yet. */
const uncheckedAddress = "free_at IS NOT NULL AND recheck_version IS NULL";
/**
 * The version that makes engines check flows again reloads every engine. For addresses of ephemeral nodes it is not
 * raised: they wait until another address needs it, or until few addresses are left.
 */
const needsRecheck = `${uncheckedAddress} AND is_quiet = 0`;
/**
 * Rechecking ends without all confirmations once no certificate names the address any more ($2: now): else a node that
 * never applies a version would keep the address from all others for ever. Not for quiet addresses: their certificates have
 * usually expired before the recheck begins, so they would never wait for a confirmation.
 */
const isExpired = "held_until < $2 AND is_quiet = 0";

/** Sets the version of the node's holds that had none yet: `version` blocks the certificates that the node had so far. */
export async function boundHolds(tx: Transaction, nodeId: number, version: number): Promise<void> {
  for (const table of ["held_names", "addresses"]) {
    await tx.run(
      `UPDATE ${table} SET held_version = $2
       WHERE node_id = $1 AND held_until IS NOT NULL AND held_version IS NULL AND free_at IS NULL`,
      [nodeId, version],
    );
  }
}

/** The organizations that hold a name or an address. */
export async function organizationsWithHolds(reader: Reader): Promise<number[]> {
  const sql = `SELECT org_id FROM held_names UNION SELECT org_id FROM addresses WHERE held_until IS NOT NULL`;
  return (await queryAll(reader, heldNames.pick("orgId"), sql)).map(({ orgId }) => orgId);
}

/**
 * Whether `releaseHolds` has anything to do. Reads a few index entries, however much is held. Mirrors the steps of
 * `releaseHolds` and `recheckFlows`: change them together.
 */
export async function mayRelease(reader: Reader, orgId: number, now: number): Promise<boolean> {
  const dueByTime = [
    // A name becomes free.
    "SELECT org_id FROM held_names WHERE org_id = $1 AND free_at <= $2",
    // A settled address becomes a rechecking one.
    `SELECT org_id FROM addresses WHERE org_id = $1 AND free_at <= $2 AND ${needsRecheck}`,
    // A rechecking address becomes free.
    `SELECT org_id FROM addresses WHERE org_id = $1 AND free_at <= $2 AND ${isExpired}`,
    // A held or bounded address becomes settled.
    `SELECT org_id FROM addresses WHERE org_id = $1 AND held_until < $2 AND ${unsettledAddress}`,
  ];
  const due = await reader.get(`${dueByTime.join(" UNION ALL ")} LIMIT 1`, [orgId, now]);
  if (due !== undefined || (await mustRecheckQuiet(reader, orgId, now))) return true;
  const awaited = [
    // A bounded name becomes settled.
    "SELECT min(held_version) AS held_version FROM held_names WHERE org_id = $1 AND free_at IS NULL",
    // A bounded address becomes settled.
    `SELECT min(held_version) FROM addresses WHERE org_id = $1 AND ${unsettledAddress}`,
    // A rechecking address becomes free.
    "SELECT min(recheck_version) FROM addresses WHERE org_id = $1 AND free_at IS NOT NULL",
  ];
  const lowest = await queryOne(
    reader,
    heldNames.pick("heldVersion"),
    `SELECT min(held_version) AS held_version FROM (${awaited.join(" UNION ALL ")}) held`,
    [orgId],
  );
  const version = lowest?.heldVersion ?? null;
  return version !== null && (await nodesBehind(reader, orgId, version, now, 1)).length === 0;
}

const isAlive = `EXISTS (SELECT 1 FROM certificates c
  WHERE c.node_id = n.id AND c.kind = 'overlay' AND c.state <> 'blocked' AND c.not_after > $2)`;

/** Names of at most `limit` active nodes with a valid certificate that have not confirmed the version, the latest first. */
export async function nodesBehind(
  reader: Reader,
  orgId: number,
  version: number,
  now: number,
  limit: number,
): Promise<string[]> {
  // Latest first: nodes that were offline for months are at the other end of the index.
  const rows = await queryAll(
    reader,
    nodes.pick("name"),
    `SELECT n.name FROM nodes n
     WHERE n.org_id = $1 AND n.state = 'active' AND n.confirmed_config_version < $3 AND ${isAlive}
     ORDER BY n.confirmed_config_version DESC LIMIT $4`,
    [orgId, now, version, limit],
  );
  return rows.map(({ name }) => name);
}

/** The version that all active nodes with a valid certificate have confirmed. Without such nodes, any version is. */
async function confirmedByAll(reader: Reader, orgId: number, now: number): Promise<number> {
  const row = await queryOne(
    reader,
    nodes.pick("confirmedConfigVersion"),
    `SELECT n.confirmed_config_version FROM nodes n
     WHERE n.org_id = $1 AND n.state = 'active' AND ${isAlive} ORDER BY n.confirmed_config_version LIMIT 1`,
    [orgId, now],
  );
  return row?.confirmedConfigVersion ?? Number.MAX_SAFE_INTEGER;
}

/**
 * Moves the names and addresses that are due to their next states. `flowMs`: how long a flow stays open without a packet.
 * `mayRelease` predicts each step.
 */
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
  const released = `org_id = $1 AND ${unsettledAddress} AND (held_version <= $2 OR held_until < $3)`;
  const anyReleased = `SELECT host FROM addresses WHERE ${released} LIMIT 1`;
  if ((await tx.get(anyReleased, [orgId, confirmed, now])) !== undefined) {
    const flowsEndAt = now + (await flowMs());
    await tx.run(`UPDATE addresses SET free_at = $4 WHERE ${released}`, [orgId, confirmed, now, flowsEndAt]);
  }
  await tx.run(
    `UPDATE addresses SET node_id = NULL, ${noHoldSql}
     WHERE org_id = $1 AND free_at <= $2 AND recheck_version IS NOT NULL
       AND (recheck_version <= $3 OR (${isExpired}))`,
    [orgId, now, confirmed],
  );
  await recheckFlows(tx, orgId, now);
}

/**
 * Lets engines check open flows again, if a settled address waits for that: `flow_rechecks` changes a firewall setting of every node
 * (withRechecks in config.ts), after which an engine does so.
 */
async function recheckFlows(tx: Transaction, orgId: number, now: number): Promise<void> {
  const due = `org_id = $1 AND free_at <= $2 AND ${uncheckedAddress}`;
  const needed = `SELECT host FROM addresses WHERE org_id = $1 AND free_at <= $2 AND ${needsRecheck} LIMIT 1`;
  if ((await tx.get(needed, [orgId, now])) === undefined && !(await mustRecheckQuiet(tx, orgId, now))) return;
  await tx.run("UPDATE organizations SET flow_rechecks = flow_rechecks + 1 WHERE id = $1", [orgId]);
  const version = await raiseConfigVersion(tx, orgId);
  await tx.run(`UPDATE addresses SET recheck_version = $3 WHERE ${due}`, [orgId, now, version]);
}

const poolPick = computed({ network: text(), nextHost: integer(), free: integer(), due: integer() });

/**
 * Whether less than an eighth of the network is left and the addresses of ended ephemeral nodes would add a sixteenth, so
 * that engines reload rarely even then.
 */
async function mustRecheckQuiet(reader: Reader, orgId: number, now: number): Promise<boolean> {
  const quiet = `org_id = $1 AND free_at <= $2 AND ${uncheckedAddress} AND is_quiet = 1`;
  if ((await reader.get(`SELECT host FROM addresses WHERE ${quiet} LIMIT 1`, [orgId, now])) === undefined)
    return false;
  const found = await queryOne(
    reader,
    poolPick,
    `SELECT o.network, o.next_host,
       (SELECT count(*) FROM addresses WHERE org_id = $1 AND node_id IS NULL) AS free,
       (SELECT count(*) FROM addresses WHERE ${quiet}) AS due FROM organizations o WHERE o.id = $1`,
    [orgId, now],
  );
  const network = parseNetwork(found?.network ?? "");
  if (found === undefined || network === undefined) return false;
  const size = lastHost(network);
  const left = size - found.nextHost + 1 + found.free;
  return left < size / 8 && (found.due >= size / 16 || left <= 0);
}
