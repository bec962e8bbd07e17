// Renewal of certificates in time. It is driven by what nodes ask: a node that is there checks in every minute, and one
// that comes back after months gets its new certificates before the answer. Nodes that are gone cost nothing.

import { AppError, messageOf } from "../../errors.ts";
import { ourselves, record, type Actor } from "../audit/record.ts";
import {
  issueOverlay,
  readIssuingOrg,
  setRenewal,
  signX509,
  storeX509,
  versionsOf,
  withSecondAddress,
  type IssuingOrg,
} from "../certificates/issue.ts";
import { findNode, type NodeRecord } from "../store/nodes.ts";
import type { ServerOptions } from "../options.ts";
import type { NodeStore } from "./node-store.ts";
import { numberOf, textOf, type Reader } from "../store/database.ts";
import { raiseOwnVersion } from "../store/versions.ts";

/** What of a node is signed anew. */
type Due = { overlay: boolean; x509: boolean };

/**
 * Signs new certificates for the same names; nothing is blocked. `due` unset: all. The node as it is then. What the
 * server renews by itself comes at its time and is never refused for its number: the node would be cut off. Throws
 * node_revoked, too_many_certificates.
 */
export async function renewCertificates(
  services: Pick<NodeStore, "db" | "system" | "authorities">,
  orgId: number,
  nodeId: number,
  actor: Actor = ourselves,
  due: Due = { overlay: true, x509: true },
): Promise<NodeRecord> {
  const { db, system } = services;
  const isBounded = actor.kind !== "server";
  const org = await readIssuingOrg(db, orgId);
  const node = withSecondAddress(org, await findNode(db, orgId, nodeId));
  const x509 = due.x509 ? await signX509(db, org, node, services) : undefined;
  return db.write(async (tx) => {
    const before = await findNode(tx, orgId, nodeId);
    const overlay = due.overlay ? await issueOverlay(tx, org, before, services, { isBounded }) : undefined;
    const present = await findNode(tx, orgId, nodeId);
    const stored = x509 !== undefined && (await storeX509(tx, present, x509, system));
    if (overlay === undefined && !stored) return present;
    await raiseOwnVersion(tx, orgId, nodeId);
    if (overlay !== undefined) {
      await record(tx, {
        orgId,
        at: system.now(),
        type: "certificate.renewed",
        actor,
        subject: `node/${nodeId}`,
        after: { fingerprint: overlay },
      });
    }
    return findNode(tx, orgId, nodeId);
  });
}

/** What has come to its time, is missing, or is of other versions than the organization's. */
export async function findDue(reader: Reader, org: IssuingOrg, node: NodeRecord, now: number): Promise<Due> {
  const rows = await reader.all(
    // A certificate that lasts as long as its CA gains nothing by a renewal, and would be due again at each look.
    `SELECT c.kind, c.version, CASE WHEN a.state = 'active' AND c.not_after >= a.not_after AND c.renew_at > 0
       THEN ${Number.MAX_SAFE_INTEGER} ELSE c.renew_at END AS renew_at
     FROM certificates c JOIN authorities a ON a.id = c.authority_id
     WHERE c.node_id = $1 AND c.state = 'current' ORDER BY c.version`,
    [node.id],
  );
  const fresh = (kind: string) => {
    const own = rows.filter((row) => textOf(row, "kind") === kind);
    return own.length > 0 && own.every((row) => numberOf(row, "renew_at") > now);
  };
  const present = rows
    .filter((row) => textOf(row, "kind") === "overlay")
    .map((row) => numberOf(row, "version"));
  // The first certificate with an IPv6 address restarts the engine: it comes when it is the node's turn.
  const waits = org.certificateVersion === "both" && org.network6 !== null && !present.includes(2);
  const moved = !waits && present.join() !== versionsOf(org).join();
  return { overlay: moved || !fresh("overlay"), x509: node.csr !== null && !fresh("x509") };
}

/** Has no more than this many renewals in hand, so that a server that was long away is not busy with nothing else. */
const maxAtOnce = 8;

export type Renewals = {
  /**
   * Renews what is due of an active node. With `wait` it is done when this resolves; without, it is left out while
   * many are in hand, since the node asks again soon.
   */
  ensure(orgId: number, nodeId: number, options: { wait: boolean }): Promise<void>;
};

export function makeRenewals(
  services: Pick<NodeStore, "db" | "system" | "authorities"> & Pick<ServerOptions, "log">,
): Renewals {
  const inHand = new Map<number, Promise<void>>();
  const renew = async (orgId: number, nodeId: number) => {
    const node = await findNode(services.db, orgId, nodeId);
    if (node.state !== "active") return;
    const org = await readIssuingOrg(services.db, orgId);
    const due = await findDue(services.db, org, node, services.system.now());
    if (due.overlay || due.x509) await renewCertificates(services, orgId, nodeId, ourselves, due);
    // It was asked to look, and has what it should.
    else if (node.renewAt === 0) await services.db.write((tx) => setRenewal(tx, nodeId));
  };
  return {
    async ensure(orgId, nodeId, { wait }) {
      const known = inHand.get(nodeId);
      if (known !== undefined) return known;
      if (!wait && inHand.size >= maxAtOnce) return;
      const work = renew(orgId, nodeId)
        // A CA that cannot sign must not keep nodes from hearing of revocations.
        .catch((error: unknown) => {
          if (error instanceof AppError && error.code === "node_revoked") return;
          services.log.error("a certificate cannot be renewed", { node: nodeId, reason: messageOf(error) });
        })
        .finally(() => inHand.delete(nodeId));
      inHand.set(nodeId, work);
      await work;
    },
  };
}
