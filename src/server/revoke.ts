// Revocation and restore: one transaction takes the node's rights, blocks its certificates on every other node and
// signs the order by which the node itself stops (decisions 6). The tombstone stays.

import * as v from "valibot";
import { AppError } from "../errors.ts";
import { makeOpaqueToken } from "../pki/opaque.ts";
import { openSecret } from "../pki/secrets.ts";
import { SigningKey, signOrder } from "../pki/tokens.ts";
import type { Order } from "../protocol.ts";
import { record, type Actor } from "./events.ts";
import { issueOverlay, issueX509, storeCertificate } from "./issue.ts";
import { findNode, type NodeRecord } from "./node-records.ts";
import type { NodeStore } from "./node-services.ts";
import { orderKeyContext, raiseConfigVersion } from "./organizations.ts";
import type { Services } from "./services.ts";
import { chooseAddress, holdAddress, releaseAddresses } from "./store/addresses.ts";
import { numberOf, textOf, type Reader, type Transaction } from "./store/database.ts";
import { nodesWithSightings } from "./store/sightings.ts";

type Org = { id: number; slug: string };
type Store = Pick<Services, "db" | "system" | "secretKey">;

/** Deletes a node: 204 for the API. A pending one that never registered just goes. Throws not_found also for a revoked one. */
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
    const now = system.now();
    const changed = await tx.run(
      `UPDATE nodes SET state = 'revoked', revoked_at = $2, revoke_reason = $3, order_seq = $4, order_jws = $5
       WHERE id = $1 AND state <> 'revoked'`,
      [id, now, reason, order.seq, order.jws],
    );
    if (changed === 0) throw new AppError("not_found", "There is no such node.");
    const version = await raiseConfigVersion(tx, org.id);
    const blocked = await blockCertificates(tx, id, version, now);
    // Without certificates nobody can still believe in the address.
    if (blocked === 0) await releaseAddresses(tx, org.id, id);
    const event = { orgId: org.id, at: now, type: "node.revoked", actor, subject: `node/${id}` };
    await record(tx, {
      ...event,
      before: { name: node.name, ip_address: node.ip },
      after: { reason, certificates: blocked },
    });
    await tx.notify("auth", `node ${id}`);
  });
}

/** All certificates of a node that live on, the former ones too. */
async function blockCertificates(
  tx: Transaction,
  nodeId: number,
  version: number,
  now: number,
): Promise<number> {
  return tx.run(
    `UPDATE certificates SET state = 'blocked', blocked_at = $2, blocked_at_version = $3
     WHERE node_id = $1 AND state <> 'blocked' AND not_after > $2`,
    [nodeId, now, version],
  );
}

/** Takes a revocation back. The old certificates stay blocked; name and address must be free. */
export async function restoreNode(
  services: NodeStore,
  org: Org,
  id: number,
  actor: Actor,
): Promise<NodeRecord> {
  const { db, system, authorities } = services;
  const node = await findNode(db, org.id, id);
  if (node.state !== "revoked") throw new AppError("conflict", `The node ${node.name} is not revoked.`);
  const row = await db.get("SELECT network FROM organizations WHERE id = $1", [org.id]);
  const full = { ...org, network: textOf(row ?? {}, "network") };
  const order = await makeOrder(services, db, org, node, "restore", "restored by an administrator");
  const active: NodeRecord = { ...node, state: "active" };
  const registered = node.hostPublicKey !== null && node.registeredAt !== null;
  const issued = registered
    ? [
        await issueOverlay(db, full, active, authorities, system.now()),
        await issueX509(db, full, active, authorities, system),
      ]
    : [];
  return db.write(async (tx) => {
    const now = system.now();
    const rival = await tx.get(
      "SELECT id FROM nodes WHERE org_id = $1 AND name = $2 AND state <> 'revoked'",
      [org.id, node.name],
    );
    if (rival !== undefined) throw new AppError("conflict", `Another node is named ${node.name} now.`);
    const holder = await tx.get("SELECT node_id FROM addresses WHERE org_id = $1 AND address = $2", [
      org.id,
      node.ip,
    ]);
    if (holder === undefined) await holdAddress(tx, org.id, await chooseAddress(tx, full, node.ip), id);
    else if (numberOf(holder, "node_id") !== id)
      throw new AppError("conflict", `Another node has the address ${node.ip} now.`);
    await tx.run(
      `UPDATE nodes SET state = $2, revoked_at = NULL, revoke_reason = NULL, order_seq = $3, order_jws = $4 WHERE id = $1 AND state = 'revoked'`,
      [id, registered ? "active" : "pending", order.seq, order.jws],
    );
    for (const each of issued) if (each !== undefined) await storeCertificate(tx, node, each, now);
    await raiseConfigVersion(tx, org.id);
    await record(tx, { orgId: org.id, at: now, type: "node.restored", actor, subject: `node/${id}` });
    await tx.notify("auth", `node ${id}`);
    return findNode(tx, org.id, id);
  });
}

/** A signed order with a number that is higher than the node's last and at least the time. */
async function makeOrder(
  services: Store,
  reader: Pick<Reader, "get">,
  org: Org,
  node: NodeRecord,
  action: Order["action"],
  reason: string,
) {
  const { system, secretKey } = services;
  const row = await reader.get("SELECT order_key_sealed, order_public FROM organizations WHERE id = $1", [
    org.id,
  ]);
  const kid = v.parse(v.object({ kid: v.string() }), JSON.parse(textOf(row ?? {}, "order_public"))).kid;
  const opened: unknown = JSON.parse(
    openSecret([secretKey], textOf(row ?? {}, "order_key_sealed"), orderKeyContext(kid)),
  );
  const seq = Math.max(system.now(), node.orderSeq + 1);
  const order: Order = {
    org: org.slug,
    node_id: node.id,
    action,
    seq,
    iat: Math.floor(system.now() / 1000),
    reason,
    jti: makeOpaqueToken((bytes) => system.random(bytes)).slice(0, 22),
  };
  return { seq, jws: await signOrder(order, v.parse(SigningKey, opened)) };
}

/**
 * Who has already put a revocation into force: the active nodes whose applied version reached it (decisions 4,
 * revocations/).
 */
export async function listRevocations({ db }: Pick<Services, "db">, orgId: number) {
  const nodes = await db.all(
    `SELECT id, applied_config_version FROM ${nodesWithSightings} WHERE org_id = $1 AND state = 'active' ORDER BY id`,
    [orgId],
  );
  const rows = await db.all(
    `SELECT n.id, n.name, n.revoked_at, n.revoke_reason, n.revoked_by,
       coalesce((SELECT max(c.blocked_at_version) FROM certificates c WHERE c.node_id = n.id), 0) AS version
     FROM nodes n WHERE n.org_id = $1 AND n.state = 'revoked' ORDER BY n.id`,
    [orgId],
  );
  return rows.map((row) => {
    const version = numberOf(row, "version");
    const waiting = nodes
      .filter((each) => Number(each["applied_config_version"] ?? 0) < version)
      .map((each) => numberOf(each, "id"));
    return {
      node_id: numberOf(row, "id"),
      name: textOf(row, "name"),
      at: new Date(numberOf(row, "revoked_at")).toISOString().replace(/\.\d+Z$/, "Z"),
      reason: row["revoke_reason"] ?? "",
      by: row["revoked_by"] ?? "",
      applied: nodes.length - waiting.length,
      total: nodes.length,
      waiting_for: waiting,
    };
  });
}
