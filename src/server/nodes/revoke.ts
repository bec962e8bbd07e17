// Revocation and restore: one transaction takes the node's rights, blocks its certificates on every other node and
// keeps the order by which the node itself stops (decisions 6). The tombstone stays.

import { AppError } from "../../errors.ts";
import { formatTime } from "../../duration.ts";
import { principal, record, type Actor, type AuditEvent } from "../audit/record.ts";
import { issueOverlay, makeX509Due, readIssuingOrg } from "../certificates/issue.ts";
import { findNode, nodeRecordOf, type NodeRecord } from "../store/nodes.ts";
import type { NodeStore } from "./node-store.ts";
import { makeOrder, type SignedOrder } from "./orders.ts";
import { checkSubnets } from "./subnets.ts";
import { renewCertificates } from "./renewal.ts";
import type { ServerOptions } from "../options.ts";
import {
  addressTaken,
  freeAddresses,
  hostNumber,
  leaveAddresses,
  takeAddress,
} from "../store/address-pool.ts";
import { numberOf, numberOrNull, textOf, textOrNull, type Row, type Transaction } from "../store/database.ts";
import { announceBlocklist } from "../certificates/blocklist.ts";
import { boundHolds } from "../store/holds.ts";
import { holdName, takeNameBack } from "../store/names.ts";
import { isPeerOfRule } from "../policy/rules.ts";
import { settle } from "./upkeep.ts";
import { pageOf, searchPattern, type ListQuery } from "../http/lists.ts";
import { raiseConfigVersion, raiseOwnVersion, tellNode } from "../store/versions.ts";

type Org = { id: number; slug: string };
type Store = Pick<ServerOptions, "db" | "system" | "secretKey">;

/** Deletes a node: 204 for the API. Throws not_found also for one that is revoked already. */
export async function revokeNode(
  services: Store,
  org: Org,
  id: number,
  actor: Actor,
  reason = "deleted by an administrator",
): Promise<void> {
  const { db, system } = services;
  const node = await findNode(db, org.id, id);
  if (node.state === "revoked") throw new AppError("not_found", "There is no such node.");
  const order = await makeOrder(services, db, org, node, "revoke", reason);
  await db.write(async (tx) => {
    const how = { actor, reason, now: system.now() };
    const event = await tombstone(tx, { orgId: org.id, id, order }, how, () =>
      raiseConfigVersion(tx, org.id),
    );
    if (event === undefined) throw new AppError("not_found", "There is no such node.");
    await record(tx, event);
  });
  // Others may have waited for this node alone to confirm.
  await settle(services, org.id);
}

type Revoking = { actor: Actor; reason: string; now: number };

/**
 * Revokes nodes inside the transaction that ends what they came by: no node can register between the two. Their orders
 * are signed when they ask (orders.ts). The caller runs `settle` after the commit.
 */
export async function revokeInside(
  tx: Transaction,
  orgId: number,
  ids: readonly number[],
  how: Revoking,
): Promise<void> {
  let version: number | undefined;
  const raise = async () => (version ??= await raiseConfigVersion(tx, orgId));
  const events: AuditEvent[] = [];
  for (const id of ids) {
    const event = await tombstone(tx, { orgId, id }, how, raise);
    if (event !== undefined) events.push(event);
  }
  if (events.length > 0) await record(tx, events);
}

/** The event to record, or undefined where the node is revoked already. */
async function tombstone(
  tx: Transaction,
  { orgId, id, order }: { orgId: number; id: number; order?: SignedOrder },
  { actor, reason, now }: Revoking,
  raise: () => Promise<number>,
): Promise<AuditEvent | undefined> {
  const row = await tx.get(
    `UPDATE nodes SET state = 'revoked', revoked_at = $2, revoke_reason = $3, revoked_by = $4,
       order_seq = coalesce($5, order_seq), order_jws = $6 WHERE id = $1 AND state <> 'revoked' RETURNING *`,
    [id, now, reason, principal(actor), order?.seq ?? null, order?.jws ?? null],
  );
  if (row === undefined) return undefined;
  const revoked = nodeRecordOf(row);
  const { name, ip } = revoked;
  const certificates = await shutOut(tx, revoked, now, raise);
  await tellNode(tx, orgId, id);
  return {
    orgId,
    at: now,
    type: "node.revoked",
    actor,
    subject: `node/${id}`,
    before: { name, ip_address: ip },
    after: { reason, certificates },
  };
}

/**
 * Blocks all certificates of a node that live on, the former ones too; their number. Its name and its address are held
 * until no node believes in them.
 */
async function shutOut(
  tx: Transaction,
  node: NodeRecord,
  now: number,
  raise: () => Promise<number>,
): Promise<number> {
  const { id, orgId } = node;
  const row = await tx.get(
    "SELECT max(not_after) AS until FROM certificates WHERE node_id = $1 AND kind = 'overlay'",
    [id],
  );
  const until = numberOrNull(row ?? {}, "until");
  if (until === null) await freeAddresses(tx, orgId, id);
  // Never registered, and in no rule: no other node has heard of it.
  if (until === null && !(await isPeerOfRule(tx, { id: orgId }, id))) return 0;
  // Also where its certificates have ended: others name it as a hub, or in their rules.
  const version = await raise();
  if (until !== null) await leaveAddresses(tx, orgId, id, { version, until });
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

/** Takes a revocation back. The old certificates stay blocked; name and address must be free. Throws conflict. */
export async function restoreNode(
  services: NodeStore,
  org: Org,
  id: number,
  actor: Actor,
): Promise<NodeRecord> {
  const { db, system } = services;
  const node = await findNode(db, org.id, id);
  if (node.state !== "revoked") throw new AppError("conflict", `The node ${node.name} is not revoked.`);
  // What an import makes of a blocklist: fingerprints of machines that nobody names any more.
  if (node.ip === "") throw new AppError("conflict", `${node.name} is no machine that could be restored.`);
  const issuing = await readIssuingOrg(db, org.id);
  const order = await makeOrder(services, db, org, node, "restore", "restored by an administrator");
  const wasRegistered = node.hostPublicKey !== null && node.registeredAt !== null;
  await db.write(async (tx) => {
    await readIssuingOrg(tx, org.id);
    const rival = await tx.get(
      "SELECT id FROM nodes WHERE org_id = $1 AND name = $2 AND state <> 'revoked'",
      [org.id, node.name],
    );
    if (rival !== undefined) throw new AppError("conflict", `Another node is named ${node.name} now.`);
    await checkSubnets(tx, issuing, node.subnets, id);
    const address = { host: hostNumber(issuing, node.ip), ip: node.ip };
    await takeAddress(tx, org.id, address, id).catch((error: unknown) => {
      throw error instanceof AppError && error.code === addressTaken("").code
        ? new AppError("conflict", `Another node has the address ${node.ip} now.`)
        : error;
    });
    const row = await tx.get(
      `UPDATE nodes SET state = $2, revoked_at = NULL, revoke_reason = NULL, revoked_by = NULL, order_seq = $3, order_jws = $4
       WHERE id = $1 AND state = 'revoked' RETURNING *`,
      [id, wasRegistered ? "active" : "pending", order.seq, order.jws],
    );
    if (row === undefined) throw new AppError("conflict", `The node ${node.name} is not revoked.`);
    await takeNameBack(tx, node);
    await makeX509Due(tx, id);
    const fingerprint = wasRegistered
      ? await issueOverlay(tx, issuing, nodeRecordOf(row), services)
      : undefined;
    // Lighthouses, relays, routers and rules that speak of the node: all others may be concerned.
    await raiseConfigVersion(tx, org.id);
    await raiseOwnVersion(tx, org.id, id);
    const event = { orgId: org.id, at: system.now(), actor, subject: `node/${id}` };
    const signed = { type: "certificate.issued", after: { fingerprint } } as const;
    await record(tx, [
      { ...event, type: "node.restored" },
      ...(fingerprint === undefined ? [] : [{ ...event, ...signed }]),
    ]);
  });
  return renewCertificates(services, org.id, id, actor, { overlay: false, x509: wasRegistered });
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

/** Of those that a revocation waits for so many are named; `applied` and `total` say how many there are. */
const mostNamed = 100;

/** Who has put each revocation into force: the active nodes that have confirmed its version (decisions 4). */
export async function listRevocations(
  { db }: Pick<ServerOptions, "db">,
  orgId: number,
  query: ListQuery,
): Promise<{ items: Revocation[]; total: number }> {
  const { limit, offset } = pageOf(query);
  const revoked = "FROM nodes WHERE org_id = $1 AND state = 'revoked' AND lower(name) LIKE $2 ESCAPE '!'";
  const pattern = searchPattern(query);
  const all = await db.get(`SELECT count(*) AS n ${revoked}`, [orgId, pattern]);
  const rows = await db.all(
    `SELECT n.id, n.name, n.revoked_at, n.revoke_reason, coalesce(u.email, n.revoked_by) AS revoked_by,
       coalesce((SELECT max(c.blocked_at_version) FROM certificates c WHERE c.node_id = n.id), 0) AS version
     FROM (SELECT * ${revoked} ORDER BY id LIMIT $3 OFFSET $4) n LEFT JOIN users u ON n.revoked_by = 'person/' || u.id
     ORDER BY n.id`,
    [orgId, pattern, limit, offset],
  );
  const total = await db.get("SELECT count(*) AS n FROM nodes WHERE org_id = $1 AND state = 'active'", [
    orgId,
  ]);
  const newest = Math.max(0, ...rows.map((row) => numberOf(row, "version")));
  // Only who lags behind is counted: usually nobody, however many nodes there are.
  const lag = "FROM nodes WHERE org_id = $1 AND state = 'active' AND confirmed_config_version < $2";
  const counts = await db.all(
    `SELECT confirmed_config_version AS version, count(*) AS n ${lag} GROUP BY confirmed_config_version`,
    [orgId, newest],
  );
  // Those furthest behind: whoever any of the revocations waits for is among them, or there are more than are named.
  const furthest = await db.all(
    `SELECT id, confirmed_config_version AS version ${lag} ORDER BY confirmed_config_version, id LIMIT ${mostNamed}`,
    [orgId, newest],
  );
  const active = numberOf(total ?? {}, "n");
  const items = rows.map((row) => revocationOf(row, active, counts, furthest));
  return { items, total: numberOf(all ?? {}, "n") };
}

function revocationOf(row: Row, total: number, counts: readonly Row[], furthest: readonly Row[]): Revocation {
  const version = numberOf(row, "version");
  const lags = (each: Row) => numberOf(each, "version") < version;
  const waiting = counts.filter(lags).reduce((sum, each) => sum + numberOf(each, "n"), 0);
  return {
    node_id: numberOf(row, "id"),
    name: textOf(row, "name"),
    at: formatTime(numberOf(row, "revoked_at")),
    reason: textOrNull(row, "revoke_reason") ?? "",
    by: textOrNull(row, "revoked_by") ?? "",
    applied: total - waiting,
    total,
    waiting_for: furthest
      .filter(lags)
      .map((each) => numberOf(each, "id"))
      .sort((a, b) => a - b),
  };
}
