// Issues the first IPv6 addresses of an organization, which restart engines, in a rolling update. One node gets its certificate and has
// to confirm it before the next node gets its own, lighthouses last. Offline nodes are skipped until they return. In the database its
// columns are called `move…`.

import type { Authorities } from "../certificates/authorities.ts";
import { ourselves, record } from "../audit/record.ts";
import { issueOverlay, readIssuingOrg } from "../certificates/issue.ts";
import { forAll } from "../for-all.ts";
import { onlineMs } from "../../api/values.ts";
import { findNode, isSeen, type NodeRecord } from "../store/nodes.ts";
import type { ServerOptions } from "../options.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { queryAll, queryOne } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";
import { raiseOwnVersion } from "../store/versions.ts";

type Store = Pick<ServerOptions, "db" | "clock"> & {
  authorities: Authorities;
  system: Pick<ServerOptions["system"], "now" | "random">;
};

/**
 * Wait before the restart of a lighthouse. A restarted lighthouse has forgotten the addresses of all nodes: in this time
 * the nodes that restarted last complete their handshakes with each other and with the previous lighthouse.
 */
const lighthouseGapMs = 10_000;

const updatePick = organizations.pick("id", "movingNode", "moveSettledAt");
type Update = ReturnType<typeof updatePick.parse>;
const openUpdates = `SELECT ${updatePick.select()} FROM organizations
  WHERE move_open = 1 AND deleted_at IS NULL AND ($1 = 0 OR id = $1)`;

/**
 * Updates the next node of each organization whose current node has confirmed, is offline or was revoked. `orgId`: only of this
 * organization; 0: of all.
 */
export async function issueFirstIpv6(services: Store, orgId = 0): Promise<void> {
  // A clock in doubt does not tell which nodes are online.
  if (services.clock.doubt() !== undefined) return;
  const open = await queryAll(services.db, updatePick, openUpdates, [orgId]);
  await forAll(
    open,
    ({ id }) => id,
    (each) => advance(services, each),
  );
}

async function advance(services: Store, update: Update): Promise<void> {
  const { db, system } = services;
  const now = system.now();
  const { id: orgId, movingNode: current } = update;
  if (current !== null && isUpdating(await findNode(db, orgId, current), now)) return;
  const next = await nextNode(db, orgId, now - onlineMs, now);
  // While only offline nodes are left, the update stays open.
  const isOpen = next !== undefined || (await nextNode(db, orgId, 0, now)) !== undefined;
  const mustSettle = current !== null && next?.isLighthouse === true;
  if (mustSettle && !(await hasSettled(db, update, now))) return;
  // Only offline nodes are left, and that is noted already.
  if (next === undefined && current === null && isOpen) return;
  await db.writeFor({ org: orgId }, async (tx) => {
    // Of two servers at the same time, only one may update the next node.
    const changedRows = await tx.run(
      `UPDATE organizations SET moving_node = $2, move_open = $3, move_settled_at = NULL
       WHERE id = $1 AND coalesce(moving_node, 0) = $4`,
      [orgId, next?.id ?? null, isOpen ? 1 : 0, current ?? 0],
    );
    if (changedRows === 1 && next !== undefined) await updateNode(tx, services, orgId, next.id);
  });
}

/** Whether the wait before a lighthouse is over. The first call starts it. */
async function hasSettled(
  db: Store["db"],
  { id, movingNode, moveSettledAt }: Update,
  now: number,
): Promise<boolean> {
  // A future time was stored by a clock that was set back since.
  if (moveSettledAt !== null && moveSettledAt <= now) return now - moveSettledAt >= lighthouseGapMs;
  // Only if the current node is still the same: another turn may have begun the next one, and the wait follows that.
  await db.writeFor({ org: id }, (tx) =>
    organizations.update(tx, { id, movingNode }, { moveSettledAt: now }),
  );
  return false;
}

/** Whether the node is online and its engine has not confirmed the new certificate yet. */
function isUpdating(node: NodeRecord, now: number): boolean {
  return node.state === "active" && isOnlineOrNew(node, now) && node.confirmedConfigVersion < node.ownVersion;
}

/** The first check-in of a node that has just registered may not be stored yet. */
const isOnlineOrNew = (node: NodeRecord, now: number): boolean =>
  isSeen(node, now) || (node.registeredAt ?? 0) > now - onlineMs;

const nodePick = nodes.pick("id", "isLighthouse");

/** SQL condition: the node has no IPv6 address in force, so its next certificate restarts its engine. */
export const lacksFirstIpv6 = (node: string): string =>
  `(${node}.ip6 IS NULL OR NOT EXISTS (SELECT 1 FROM certificates m
    WHERE m.node_id = ${node}.id AND m.kind = 'overlay' AND m.state = 'current' AND m.version = 2))`;

/** SQL condition: the node has its IPv6 address, and its certificate of an offline CA stays until signers issue one with it. */
const waitsForSigners = `(ip6 IS NOT NULL AND EXISTS (SELECT 1 FROM certificates c JOIN authorities a ON a.id = c.authority_id
    WHERE c.node_id = nodes.id AND c.kind = 'overlay' AND c.state = 'current' AND a.offline = 1 AND c.not_after > $3))`;

/** The first node without an IPv6 address in force that has checked in or registered after `since`, ms; 0: any node. */
async function nextNode(
  reader: Reader,
  orgId: number,
  since: number,
  now: number,
): Promise<{ id: number; isLighthouse: boolean } | undefined> {
  return queryOne(
    reader,
    nodePick,
    `SELECT ${nodePick.select()} FROM nodes LEFT JOIN sightings ON node_id = id
     WHERE org_id = $1 AND state = 'active' AND phone IS NULL AND ($2 = 0 OR last_checkin_at > $2 OR registered_at > $2)
       AND ${lacksFirstIpv6("nodes")} AND NOT ${waitsForSigners}
     ORDER BY is_lighthouse, is_relay, id LIMIT 1`,
    [orgId, since, now],
  );
}

async function updateNode(tx: Transaction, services: Store, orgId: number, nodeId: number): Promise<void> {
  const org = await readIssuingOrg(tx, orgId);
  const fingerprint = await issueOverlay(tx, org, await findNode(tx, orgId, nodeId), services, {
    // The update bounds them: it issues one certificate a node.
    isBounded: false,
  });
  await raiseOwnVersion(tx, orgId, nodeId);
  await record(tx, {
    orgId,
    at: services.system.now(),
    type: "certificate.renewed",
    actor: ourselves,
    subject: `node/${nodeId}`,
    after: { fingerprint },
  });
}
