// Revocation. One transaction revokes the node and blocks its certificates on every other node. The order that stops the node
// itself is signed at its next request (orders.ts), so that a revocation needs no key. The row stays as a tombstone.

import { AppError } from "../../../base/errors.ts";
import { type Actor, type AuditEvent, principal, record } from "../../audit/record.ts";
import { findNode, revokedNode } from "../../store/nodes.ts";
import { mayNotRevoke, requireOwner } from "../node-owner.ts";
import type { Store } from "../../options.ts";
import { freeAddresses, leaveAddresses } from "../../allocation/address-pool.ts";
import type { Transaction } from "../../store/database.ts";
import { queryAll, queryOne } from "../../store/table.ts";
import { lastOverlayEnd } from "../../store/tables/certificates.ts";
import { type NodeRow, nodes } from "../../store/tables/nodes.ts";
import { requireRole } from "../../require-role.ts";
import { publishNames } from "../../names/publish.ts";
import { acceptedFrom, announceBlocklist } from "../../certificates/blocklist.ts";
import { boundHolds } from "../../allocation/holds.ts";
import { holdName } from "../../allocation/held-names.ts";
import { isPeerOfRule } from "../../policy/rules.ts";
import { endSessionsOn } from "../../users/sessions/session-nodes.ts";
import { runDueUpkeep } from "./upkeep.ts";
import { notifyNode, raiseConfigVersion } from "../../store/versions.ts";
import type { Org } from "../../http/route.ts";

/**
 * Revokes a node. `ownerId`: only as this user's own node. Throws not_found also for a node that is already revoked,
 * permission_denied for a node that is not the user's, and for one that does not exist: the user may not ask. Throws it also
 * for an administrator who lost the role meanwhile.
 */
export async function revokeNode(
  services: Store,
  org: Org,
  id: number,
  actor: Actor,
  reason = "revoked by an administrator",
  ownerId?: number,
): Promise<{ sessionsEnded: number }> {
  const { db, system } = services;
  const node = await findNode(db, org.id, id).catch((error: unknown) => {
    throw ownerId === undefined ? error : mayNotRevoke();
  });
  if (ownerId !== undefined && node.ownerId !== ownerId) throw mayNotRevoke();
  // `endedAt`: an ephemeral node that ended. Its certificates are not blocked, so it can still be revoked.
  if (node.state === "revoked" && node.endedAt === null) throw revokedNode(node);
  const sessionsEnded = await db.writeFor({ org: org.id }, async (tx) => {
    if (ownerId !== undefined) await requireOwner(tx, await findNode(tx, org.id, id), ownerId);
    else if (actor.kind !== "node") await requireRole(tx, org.id, actor);
    const revocation = { actor, reason, now: system.now() };
    const raise = () => raiseConfigVersion(tx, org.id);
    const revoked = await revokeRow(tx, { orgId: org.id, id }, revocation, raise);
    if (revoked === undefined) throw revokedNode(node);
    await publishNames(tx, org.id, [id]);
    await record(tx, revoked.event);
    return revoked.sessionsEnded;
  });
  // Pending work may have waited for this node's confirmation only.
  await runDueUpkeep(services, org.id);
  return { sessionsEnded };
}

type RevocationOf = { actor: Actor; reason: string; now: number };

/**
 * Revokes nodes in the caller's transaction, for example the one that deletes the credential which registered them: no node can
 * register in between. The caller runs `runDueUpkeep` after the commit.
 */
export async function revokeInside(
  tx: Transaction,
  orgId: number,
  ids: readonly number[],
  revocation: RevocationOf,
): Promise<void> {
  let version: number | undefined;
  // Once for all of them, and only if one needs it.
  const raise = async () => (version ??= await raiseConfigVersion(tx, orgId));
  const events: AuditEvent[] = [];
  for (const id of ids) {
    const revoked = await revokeRow(tx, { orgId, id }, revocation, raise);
    if (revoked !== undefined) events.push(revoked.event);
  }
  await publishNames(tx, orgId, ids);
  if (events.length > 0) await record(tx, events);
}

/**
 * Makes the node's row one of a revoked node, and blocks its certificates. `raise`: raises the version of the configurations, and
 * returns it. Returns the event, for the caller to record; undefined if the node is already revoked.
 */
async function revokeRow(
  tx: Transaction,
  { orgId, id }: { orgId: number; id: number },
  { actor, reason, now }: RevocationOf,
  raise: () => Promise<number>,
): Promise<{ event: AuditEvent; sessionsEnded: number } | undefined> {
  const revoked = await queryOne(
    tx,
    nodes,
    `UPDATE nodes SET state = 'revoked', revoked_at = $2, revoke_reason = $3, revoked_by = $4,
       order_jws = NULL, ended_at = NULL
     WHERE id = $1 AND (state <> 'revoked' OR ended_at IS NOT NULL)
     RETURNING ${nodes.select()}`,
    [id, now, reason, principal(actor)],
  );
  if (revoked === undefined) return undefined;
  const { name, ip } = revoked;
  const certificates = await blockNode(tx, revoked, now, raise);
  // A node that leaves by itself is not compromised.
  const sessionsEnded = actor.kind === "node" ? 0 : await endSessionsOn(tx, id, now);
  await notifyNode(tx, orgId, id);
  const event: AuditEvent = {
    orgId,
    at: now,
    type: "node.revoked",
    actor,
    subject: `node/${id}`,
    before: { name, ip_address: ip },
    after: { reason, certificates, ...(sessionsEnded === 0 ? {} : { sessions_ended: sessionsEnded }) },
  };
  return { event, sessionsEnded };
}

/**
 * Blocks all unexpired certificates of a node, the former ones too. Returns their number. Holds its name and address until
 * every active node has confirmed the change.
 */
async function blockNode(
  tx: Transaction,
  node: NodeRow,
  now: number,
  raise: () => Promise<number>,
): Promise<number> {
  const { id, orgId } = node;
  const until = await lastOverlayEnd(tx, id);
  if (until === 0) await freeAddresses(tx, orgId, id);
  // Never registered and in no rule: no other node's configuration contains its name.
  if (until === 0 && !(await isPeerOfRule(tx, { id: orgId }, id))) return 0;
  // Even if its certificates have expired: other configurations may contain it as a hub or in rules.
  const version = await raise();
  if (until > 0) await leaveAddresses(tx, orgId, id, { version, until });
  await holdName(tx, node, version);
  await boundHolds(tx, id, version);
  const blocked = await tx.run(
    `UPDATE certificates SET state = 'blocked', blocked_at = $2, blocked_at_version = $3
     WHERE node_id = $1 AND kind = 'overlay' AND state <> 'blocked' AND not_after > $4`,
    [id, now, version, acceptedFrom(now)],
  );
  await announceBlocklist(tx, orgId, now);
  return blocked;
}

/** Concurrent transactions share one commit. */
const concurrency = 64;

/** Before an organization is deleted. A node that a concurrent request has revoked counts as done. */
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
