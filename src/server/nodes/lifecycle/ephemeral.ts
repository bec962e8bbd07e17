// Ephemeral nodes, for jobs that come and go: they end when they leave or are silent, and come back with their keys. An end
// blocks nothing and changes no configuration of others: their certificates end within an hour, no rule names them, and
// they are no hubs. The row stays in state `revoked` with `ended_at` until its last certificate has expired.

import { ourselves, principal, record, type Actor } from "../../audit/record.ts";
import { issueOverlay, makeX509Due, readIssuingOrg, type IssuingOrg } from "../../certificates/issue.ts";
import { publishNames } from "../../names/publish.ts";
import { insertGroups } from "../../policy/groups.ts";
import type { Store } from "../../options.ts";
import {
  chooseAddress,
  freeAddresses,
  hostNumber,
  leaveAddresses,
  takeAddress,
} from "../../allocation/address-pool.ts";
import type { Transaction } from "../../store/database.ts";
import { holdUntil, releaseOwnName } from "../../allocation/held-names.ts";
import { findNode, requireNameStillFree } from "../../store/nodes.ts";
import { queryOne } from "../../store/table.ts";
import { addresses, nodes, type NodeRow } from "../../store/tables/nodes.ts";
import { certificates, lastCertificateEnd } from "../../store/tables/certificates.ts";
import { notifyNode, raiseOwnVersion } from "../../store/versions.ts";
import type { NodeStore } from "../node-store.ts";

/** Ends the node that leaves. False if it is not ephemeral. */
export async function endNode(
  { db, system }: Store,
  org: { id: number },
  id: number,
  actor: Actor,
): Promise<boolean> {
  return db.writeFor({ org: org.id }, async (tx) => {
    const node = await findNode(tx, org.id, id);
    if (node.ephemeralSilenceS === null) return false;
    await endInside(tx, node, { actor, reason: "left", now: system.now() });
    return true;
  });
}

/** $2: now, ms. $3: the reason. $4: who ended it. $5: `lastHeardAt`. */
const endUnlessHeard = `UPDATE nodes SET state = 'revoked', revoked_at = $2, ended_at = $2, revoke_reason = $3, revoked_by = $4
  WHERE id = $1 AND state <> 'revoked' AND ephemeral_silence_s IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM sightings s WHERE s.node_id = nodes.id AND s.last_checkin_at > $5)
  RETURNING ${nodes.select()}`;

/**
 * Ends a node inside the caller's transaction; nothing happens if it has ended already. `lastHeardAt`: the node does not end if it
 * was heard after this time, ms. Without it, it ends in any case.
 */
export async function endInside(
  tx: Transaction,
  { id, orgId }: Pick<NodeRow, "id" | "orgId">,
  {
    actor,
    reason,
    now,
    lastHeardAt = Number.MAX_SAFE_INTEGER,
  }: { actor: Actor; reason: "left" | "silent"; now: number; lastHeardAt?: number },
): Promise<void> {
  const params = [id, now, reason, principal(actor), lastHeardAt];
  const node = await queryOne(tx, nodes, endUnlessHeard, params);
  if (node === undefined) return;
  // When the last certificate of the node expires, ms; 0: it never had one.
  const until = await lastCertificateEnd(tx, id);
  if (until === 0) await freeAddresses(tx, orgId, id);
  else {
    // Held until the certificates have expired, because no version blocks them. `isQuiet`: engines need not check their flows for it.
    await leaveAddresses(tx, orgId, id, { version: null, until, isQuiet: true });
    await holdUntil(tx, node, until);
  }
  await certificates.update(tx, { nodeId: id, kind: "overlay", state: "current" }, { state: "former" });
  if (node.isNamed) await publishNames(tx, orgId, [id]);
  await notifyNode(tx, orgId, id);
  const event = { orgId, at: now, actor, subject: `node/${id}`, type: "node.ended" } as const;
  await record(tx, { ...event, after: { reason, name: node.name, ip_address: node.ip } });
}

/**
 * Brings an ended node back with a new certificate; does nothing for others. Called when an ended node checks in with a running
 * engine. Throws too_many_certificates for a node that ends and returns without a pause: a later revocation would have to block
 * each of its certificates.
 */
export async function returnNode(
  services: Pick<NodeStore, "db" | "system" | "authorities">,
  orgId: number,
  id: number,
): Promise<void> {
  const { db, system } = services;
  await db.writeFor({ org: orgId }, async (tx) => {
    const node = await findNode(tx, orgId, id);
    if (node.endedAt === null) return;
    const org = await readIssuingOrg(tx, orgId);
    const back = await bringBack(tx, org, node, { kind: "node", id, ip: null }, system.now());
    // It had ended before its registration was complete: registering again completes it, and issues the certificate.
    if (back.state !== "active") return;
    const fingerprint = await issueOverlay(tx, org, back, services);
    await raiseOwnVersion(tx, orgId, id);
    const event = { orgId, at: system.now(), actor: ourselves, subject: `node/${id}` };
    await record(tx, { ...event, type: "certificate.issued", after: { fingerprint } });
  });
}

/**
 * Makes an ended node live again, with its former address or, if another node has that, with the next free one. Throws
 * conflict if another node has its name. The caller issues certificates.
 */
export async function bringBack(
  tx: Transaction,
  org: IssuingOrg,
  node: NodeRow,
  actor: Actor,
  now: number,
): Promise<NodeRow> {
  await requireNameStillFree(tx, node, {
    hint: "Register this machine again with new keys and another name.",
  });
  const address = await addressToReturnWith(tx, org, node);
  await takeAddress(tx, org.id, address, node.id, now);
  // A group may have been deleted while only ended nodes had it.
  await insertGroups(tx, org.id, node.groups, now);
  const change = {
    state: node.registeredAt === null ? ("pending" as const) : ("active" as const),
    ip: address.ip,
    ip6: address.ip6,
    endedAt: null,
    revokedAt: null,
    revokeReason: null,
    revokedBy: null,
    // Its silence counts from now on, not from its last check-in.
    watchedFrom: now,
  };
  await nodes.update(tx, { id: node.id }, change);
  await releaseOwnName(tx, node);
  await makeX509Due(tx, node.id);
  if (node.isNamed) await publishNames(tx, org.id, [node.id]);
  await notifyNode(tx, org.id, node.id);
  const event = { orgId: org.id, at: now, actor, subject: `node/${node.id}`, type: "node.returned" } as const;
  await record(tx, { ...event, after: { name: node.name, ip_address: address.ip } });
  return { ...node, ...change };
}

/** The address that the node had or, if another node has that, the next free one. */
async function addressToReturnWith(tx: Transaction, org: IssuingOrg, node: NodeRow) {
  const host = hostNumber(org, node.ip);
  const row = await addresses.find(tx, { orgId: org.id, host });
  const isOurs = row === undefined || row.nodeId === null || row.nodeId === node.id;
  return isOurs ? { host, ip: node.ip, ip6: node.ip6 } : chooseAddress(tx, org, undefined);
}
