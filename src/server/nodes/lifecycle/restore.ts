// Restore of a revoked node, with new certificates and a signed order.

import { AppError } from "../../../base/errors.ts";
import { issuedEvents, record, type Actor } from "../../audit/record.ts";
import { issueOverlay, makeX509Due, readIssuingOrg, setRenewal } from "../../certificates/issue.ts";
import { findNode, requireNameStillFree, type NodeRecord } from "../../store/nodes.ts";
import type { NodeStore } from "../node-store.ts";
import { beginPeriod } from "./owner-period.ts";
import { makeOrder } from "../contact/orders.ts";
import { insertGroups } from "../../policy/groups.ts";
import { groupsIn } from "../nodes.ts";
import { checkHub, checkSubnets } from "../subnets.ts";
import { renewCertificates } from "./renewal.ts";
import { type Networks, hostNumber, hostOf6, takeAddress } from "../../allocation/address-pool.ts";
import type { Transaction } from "../../store/database.ts";
import { type NodeRow, nodes } from "../../store/tables/nodes.ts";
import { publishNames } from "../../names/publish.ts";
import { releaseOwnName } from "../../allocation/held-names.ts";
import { writeAsAdmin } from "../../require-role.ts";
import { raiseConfigVersion, raiseOwnVersion } from "../../store/versions.ts";

/** Restores a revoked node with new certificates; the old ones stay blocked. Throws conflict if name or address is taken. */
export async function restoreNode(
  services: NodeStore,
  org: { id: number; slug: string },
  id: number,
  actor: Actor,
): Promise<NodeRecord> {
  const { db, system } = services;
  const node = await findNode(db, org.id, id);
  requireRestorable(node);
  const issuing = await readIssuingOrg(db, org.id);
  const order = await makeOrder(services, db, org, node, "restore", "restored by an administrator");
  const wasRegistered = node.hostPublicKey !== null && node.registeredAt !== null;
  await writeAsAdmin(db, org.id, actor, async (tx) => {
    // Throws if the organization was deleted meanwhile.
    await readIssuingOrg(tx, org.id);
    await requireNameStillFree(tx, node);
    await checkSubnets(tx, issuing, node.subnets, node);
    await checkHub(tx, org.id, node);
    await takeAddresses(tx, issuing, node, system.now());
    // A group that only revoked nodes had may have been deleted: a new one of its name must not have this node unseen.
    await insertGroups(
      tx,
      org.id,
      groupsIn({ groups: node.groups, exit_groups: node.exitGroups }),
      system.now(),
    );
    const restored = await nodes.update(
      tx,
      { id, state: "revoked" },
      {
        ...(wasRegistered ? { state: "active" } : { state: "pending", ...columnsOfClaimable(node) }),
        revokedAt: null,
        revokeReason: null,
        revokedBy: null,
        orderSeq: order.seq,
        orderJws: order.jws,
        // Its silence counts from now on: while it was revoked, it could not check in.
        watchedFrom: system.now(),
        awaySince: null,
      },
    );
    if (restored === 0) throw notRevoked(node);
    // Its user gets the whole time again to confirm it (reauthentication.ts).
    await beginPeriod(tx, id, system.now(), "given");
    await releaseOwnName(tx, node);
    await makeX509Due(tx, id);
    // A phone gets its certificates when its user imports it again. For other nodes issueOverlay sets when they are due.
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
    await record(tx, [{ ...event, type: "node.restored" }, ...issuedEvents(event, fingerprint)]);
  });
  // X.509 is signed outside of a transaction, because that takes long.
  return renewCertificates(services, org.id, id, { actor, due: { overlay: false, x509: wasRegistered } });
}

function requireRestorable(node: NodeRecord): void {
  if (node.state !== "revoked") throw notRevoked(node);
  if (node.endedAt !== null)
    throw new AppError(
      "conflict",
      `The node ${node.name} is ephemeral and has ended: its machine brings it back.`,
    );
  if (isPlaceholder(node))
    throw new AppError("conflict", `${node.name} is not a machine: it cannot be restored.`);
}

/** The node without an address that an import makes: it holds blocked fingerprints of unknown nodes. */
const isPlaceholder = ({ ip }: NodeRecord) => ip === "";

const notRevoked = ({ name }: NodeRecord) => new AppError("conflict", `The node ${name} is not revoked.`);

/**
 * Throws conflict if another node has one of the node's addresses. Both have the same host number and one row, except that the IPv6
 * address of an imported node may have another number, and a row of its own.
 */
async function takeAddresses(tx: Transaction, org: Networks, node: NodeRecord, now: number): Promise<void> {
  const address4 = { host: hostNumber(org, node.ip), ip: node.ip };
  const address6 = { host: hostOf6(org, node.ip6) ?? address4.host, ip: node.ip6 ?? "" };
  for (const address of address6.host === address4.host ? [address4] : [address4, address6]) {
    await takeAddress(tx, org.id, address, node.id, now).catch((error: unknown) => {
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
function columnsOfClaimable({ csrKeySha256 }: NodeRow): Partial<NodeRow> {
  return csrKeySha256 === null ? { hostPublicKey: null } : {};
}
