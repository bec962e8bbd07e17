// Revocation and restore. One transaction revokes the node, blocks its certificates on every other node and stores the
// order that stops the node itself. The row stays as a tombstone.

import { AppError } from "../../../base/errors.ts";
import { formatTime } from "../../../base/quantities.ts";
import { principal, record, type Actor, type AuditEvent } from "../../audit/record.ts";
import { issueOverlay, makeX509Due, readIssuingOrg, setRenewal } from "../../certificates/issue.ts";
import { findNode, revokedNode, type NodeRecord } from "../../store/nodes.ts";
import type { NodeStore } from "../node-store.ts";
import { mayNotRevoke, requireOwner } from "../node-owner.ts";
import { beginPeriod } from "./owner-period.ts";
import { makeOrder, type SignedOrder } from "../contact/orders.ts";
import { checkHub, checkSubnets } from "../subnets.ts";
import { renewCertificates } from "./renewal.ts";
import type { ServerOptions } from "../../options.ts";
import {
  freeAddresses,
  hostNumber,
  leaveAddresses,
  secondHost,
  takeAddress,
  type Networks,
} from "../../allocation/address-pool.ts";
import type { Transaction } from "../../store/database.ts";
import { computed, integer, queryAll, queryNumber, queryOne, text, textOrNull } from "../../store/table.ts";
import { lastCertificateEnd } from "../../store/tables/certificates.ts";
import { nodes, type NodeRow } from "../../store/tables/nodes.ts";
import { publishNames } from "../../names/publish.ts";
import { announceBlocklist } from "../../certificates/blocklist.ts";
import { boundHolds } from "../../allocation/holds.ts";
import { holdName, releaseOwnName } from "../../allocation/held-names.ts";
import { isPeerOfRule } from "../../policy/rules.ts";
import { endSessionsOn } from "../../users/sessions/session-nodes.ts";
import { runDueUpkeep } from "./upkeep.ts";
import { fitPage, pageOf, searchPattern, type Page } from "../../http/lists.ts";
import type { ListQuery } from "../../../api/values.ts";
import { raiseConfigVersion, raiseOwnVersion, notifyNode } from "../../store/versions.ts";

type Org = { id: number; slug: string };
type Store = Pick<ServerOptions, "db" | "system" | "secretKey">;

/**
 * Revokes a node. `ownerId`: only as this user's own node. Throws not_found also for a node that is already revoked,
 * permission_denied for a node that is not the user's, and for one that does not exist: the user may not ask.
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
  if (node.state === "revoked" && node.endedAt === null) throw revokedNode(node);
  const order = await makeOrder(services, db, org, node, "revoke", reason);
  const sessionsEnded = await db.writeFor({ org: org.id }, async (tx) => {
    if (ownerId !== undefined) await requireOwner(tx, await findNode(tx, org.id, id), ownerId);
    const revocation = { actor, reason, now: system.now() };
    const raise = () => raiseConfigVersion(tx, org.id);
    const event = await tombstone(tx, { orgId: org.id, id, order }, revocation, raise);
    if (event === undefined) throw revokedNode(node);
    await publishNames(tx, org.id, [id]);
    await record(tx, event);
    return Number(event.after?.["sessions_ended"] ?? 0);
  });
  // Pending work may have waited for this node's confirmation only.
  await runDueUpkeep(services, org.id);
  return { sessionsEnded };
}

type RevocationOf = { actor: Actor; reason: string; now: number };

/**
 * Revokes nodes in the transaction that deletes the credential which registered them: no node can register in between.
 * Their orders are signed at their next request (orders.ts). The caller runs `runDueUpkeep` after the commit.
 */
export async function revokeInside(
  tx: Transaction,
  orgId: number,
  ids: readonly number[],
  revocation: RevocationOf,
): Promise<void> {
  let version: number | undefined;
  const raise = async () => (version ??= await raiseConfigVersion(tx, orgId));
  const events: AuditEvent[] = [];
  for (const id of ids) {
    const event = await tombstone(tx, { orgId, id }, revocation, raise);
    if (event !== undefined) events.push(event);
  }
  await publishNames(tx, orgId, ids);
  if (events.length > 0) await record(tx, events);
}

/** Returns the event to record, or undefined if the node is already revoked. */
async function tombstone(
  tx: Transaction,
  { orgId, id, order }: { orgId: number; id: number; order?: SignedOrder },
  { actor, reason, now }: RevocationOf,
  raise: () => Promise<number>,
): Promise<AuditEvent | undefined> {
  const revoked = await queryOne(
    tx,
    nodes,
    `UPDATE nodes SET state = 'revoked', revoked_at = $2, revoke_reason = $3, revoked_by = $4,
       order_seq = coalesce($5, order_seq), order_jws = $6, ended_at = NULL
     WHERE id = $1 AND (state <> 'revoked' OR ended_at IS NOT NULL)
     RETURNING ${nodes.select()}`,
    [id, now, reason, principal(actor), order?.seq ?? null, order?.jws ?? null],
  );
  if (revoked === undefined) return undefined;
  const { name, ip } = revoked;
  const certificates = await blockNode(tx, revoked, now, raise);
  // A node that leaves by itself is not compromised.
  const sessions = actor.kind === "node" ? 0 : await endSessionsOn(tx, id, now);
  await notifyNode(tx, orgId, id);
  return {
    orgId,
    at: now,
    type: "node.revoked",
    actor,
    subject: `node/${id}`,
    before: { name, ip_address: ip },
    after: { reason, certificates, ...(sessions === 0 ? {} : { sessions_ended: sessions }) },
  };
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
  const until = await lastCertificateEnd(tx, id);
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
     WHERE node_id = $1 AND kind = 'overlay' AND state <> 'blocked' AND not_after > $2`,
    [id, now, version],
  );
  await announceBlocklist(tx, orgId, now);
  return blocked;
}

/** Restores a revoked node with new certificates; the old ones stay blocked. Throws conflict if name or address is taken. */
export async function restoreNode(
  services: NodeStore,
  org: Org,
  id: number,
  actor: Actor,
): Promise<NodeRecord> {
  const { db, system } = services;
  const node = await findNode(db, org.id, id);
  if (node.state !== "revoked") throw new AppError("conflict", `The node ${node.name} is not revoked.`);
  if (node.endedAt !== null)
    throw new AppError(
      "conflict",
      `The node ${node.name} is ephemeral and has ended: its machine brings it back.`,
    );
  // The placeholder node of an import, which holds blocked fingerprints of unknown nodes.
  if (node.ip === "") throw new AppError("conflict", `${node.name} is not a machine: it cannot be restored.`);
  const issuing = await readIssuingOrg(db, org.id);
  const order = await makeOrder(services, db, org, node, "restore", "restored by an administrator");
  const wasRegistered = node.hostPublicKey !== null && node.registeredAt !== null;
  await db.writeFor({ org: org.id }, async (tx) => {
    await readIssuingOrg(tx, org.id);
    const rivals = "SELECT count(*) AS n FROM nodes WHERE org_id = $1 AND name = $2 AND state <> 'revoked'";
    if ((await queryNumber(tx, rivals, [org.id, node.name])) > 0)
      throw new AppError("conflict", `Another node is named ${node.name} now.`);
    await checkSubnets(tx, issuing, node.subnets, node);
    await checkHub(tx, org.id, node);
    await takeAddresses(tx, issuing, node);
    const live = {
      revokedAt: null,
      revokeReason: null,
      revokedBy: null,
      orderSeq: order.seq,
      orderJws: order.jws,
      watchedFrom: system.now(),
      awaySince: null,
    };
    const state = wasRegistered
      ? { state: "active" as const }
      : { state: "pending" as const, ...claimable(node) };
    const restored = await nodes.update(tx, { id, state: "revoked" }, { ...state, ...live });
    if (restored === 0) throw new AppError("conflict", `The node ${node.name} is not revoked.`);
    await beginPeriod(tx, id, system.now(), "given");
    await releaseOwnName(tx, node);
    await makeX509Due(tx, id);
    if (node.phone !== null) await setRenewal(tx, id);
    const fingerprint =
      wasRegistered && node.phone === null
        ? await issueOverlay(tx, issuing, await findNode(tx, org.id, id), services)
        : undefined;
    // The node may be a lighthouse, a relay, a router or a peer of rules: wake all nodes.
    await raiseConfigVersion(tx, org.id);
    await raiseOwnVersion(tx, org.id, id);
    await publishNames(tx, org.id, [id]);
    const event = { orgId: org.id, at: system.now(), actor, subject: `node/${id}` };
    const signed = { type: "certificate.issued", after: { fingerprint } } as const;
    await record(tx, [
      { ...event, type: "node.restored" },
      ...(fingerprint === undefined ? [] : [{ ...event, ...signed }]),
    ]);
  });
  return renewCertificates(services, org.id, id, actor, { overlay: false, x509: wasRegistered });
}

/** Throws conflict if another node has one of them. The IPv6 address of an imported node may have a row of its own. */
async function takeAddresses(tx: Transaction, org: Networks, node: NodeRecord): Promise<void> {
  const first = { host: hostNumber(org, node.ip), ip: node.ip };
  const second = { host: secondHost(org, node.ip6) ?? first.host, ip: node.ip6 ?? "" };
  for (const address of second.host === first.host ? [first] : [first, second]) {
    await takeAddress(tx, org.id, address, node.id).catch((error: unknown) => {
      throw error instanceof AppError && error.code === "address_taken"
        ? new AppError("conflict", `Another node has the address ${address.ip} now.`)
        : error;
    });
  }
}

/**
 * A node of an imported network has the key of its hand-made certificates, which stay blocked: its machine has to register
 * with another key. The key of an interrupted registration stays, so that it can be resumed.
 */
function claimable({ csrKeySha256 }: NodeRow): Partial<NodeRow> {
  return csrKeySha256 === null ? { hostPublicKey: null } : {};
}

export type Revocation = {
  node_id: number;
  name: string;
  at: string;
  reason: string;
  by: string;
  applied: number;
  total: number;
  waiting_for: number[];
};

/** Number of nodes in `waiting_for`. `applied` and `total` count all of them. */
const maxNamed = 100;

const revocationPick = computed({
  nodeId: integer(),
  name: text(),
  revokedAt: integer(),
  revokeReason: textOrNull(),
  revokedBy: textOrNull(),
  version: integer(),
});
const versionCount = computed({ version: integer(), n: integer() });
const lateNode = computed({ id: integer(), version: integer() });

/** Lists revocations with the active nodes that have confirmed them, and those that have not. */
export async function listRevocations(
  { db }: Pick<ServerOptions, "db">,
  orgId: number,
  query: ListQuery,
): Promise<Page<Revocation>> {
  const revoked =
    "FROM nodes WHERE org_id = $1 AND state = 'revoked' AND ended_at IS NULL AND lower(name) LIKE $2 ESCAPE '!'";
  const pattern = searchPattern(query);
  const all = await queryNumber(db, `SELECT count(*) AS n ${revoked}`, [orgId, pattern]);
  const longest = `SELECT coalesce(max(octet_length(revoke_reason)), 0) AS n ${revoked}`;
  const fitted = fitPage(query, await queryNumber(db, longest, [orgId, pattern]));
  const { limit, offset } = pageOf(fitted);
  const rows = await queryAll(
    db,
    revocationPick,
    `SELECT n.id AS node_id, n.name, n.revoked_at, n.revoke_reason, coalesce(u.email, n.revoked_by) AS revoked_by,
       coalesce((SELECT max(c.blocked_at_version) FROM certificates c WHERE c.node_id = n.id), 0) AS version
     FROM (SELECT * ${revoked} ORDER BY id LIMIT $3 OFFSET $4) n LEFT JOIN users u ON n.revoked_by = 'person/' || u.id
     ORDER BY n.id`,
    [orgId, pattern, limit, offset],
  );
  const activeNodes =
    "SELECT count(*) AS n FROM nodes WHERE org_id = $1 AND state = 'active' AND phone IS NULL";
  const active = await queryNumber(db, activeNodes, [orgId]);
  const newest = Math.max(0, ...rows.map(({ version }) => version));
  // Counts only nodes that lag behind: usually none, however many nodes there are.
  const lag = "FROM nodes WHERE org_id = $1 AND state = 'active' AND confirmed_config_version < $2";
  const counts = await queryAll(
    db,
    versionCount,
    `SELECT confirmed_config_version AS version, count(*) AS n ${lag} GROUP BY confirmed_config_version`,
    [orgId, newest],
  );
  // The nodes furthest behind: they include all nodes that any of the revocations waits for, up to the limit.
  const furthest = await queryAll(
    db,
    lateNode,
    `SELECT id, confirmed_config_version AS version ${lag} ORDER BY confirmed_config_version, id LIMIT ${maxNamed}`,
    [orgId, newest],
  );
  return { items: rows.map((row) => revocationOf(row, active, counts, furthest)), total: all, query: fitted };
}

function revocationOf(
  row: ReturnType<typeof revocationPick.parse>,
  total: number,
  counts: readonly ReturnType<typeof versionCount.parse>[],
  furthest: readonly ReturnType<typeof lateNode.parse>[],
): Revocation {
  const lags = (each: { version: number }) => each.version < row.version;
  const waiting = counts.filter(lags).reduce((sum, { n }) => sum + n, 0);
  return {
    node_id: row.nodeId,
    name: row.name,
    at: formatTime(row.revokedAt),
    reason: row.revokeReason ?? "",
    by: row.revokedBy ?? "",
    applied: total - waiting,
    total,
    waiting_for: furthest
      .filter(lags)
      .map(({ id }) => id)
      .sort((a, b) => a - b),
  };
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
