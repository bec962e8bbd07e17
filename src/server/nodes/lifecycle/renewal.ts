// Renews certificates in time, driven by check-ins: an online node checks in every minute, and a node that returns after
// months gets new certificates before its answer. Offline nodes cost nothing.

import { AppError, messageOf } from "../../../base/errors.ts";
import { ourselves, record, type Actor } from "../../audit/record.ts";
import { makeFairQueue } from "../../http/fair-queue.ts";
import {
  issueOverlay,
  readIssuingOrg,
  setRenewal,
  signX509,
  storeX509,
  versionsOf,
  withSecondAddress,
  type IssuingOrg,
} from "../../certificates/issue.ts";
import { findNode, type NodeRecord } from "../../store/nodes.ts";
import { forAll, orgOf, orgOfEntry } from "../../for-all.ts";
import type { ServerOptions } from "../../options.ts";
import type { NodeStore } from "../node-store.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import { isUnsafe } from "../contact/refused-engine.ts";
import { computed, queryAll, truth } from "../../store/table.ts";
import { certificates } from "../../store/tables/certificates.ts";
import type { NodeRow } from "../../store/tables/nodes.ts";
import { notifyNode, raiseOwnVersion } from "../../store/versions.ts";

/** The kinds of certificates to sign. */
type Due = { overlay: boolean; x509: boolean };
type Renewing = {
  actor?: Actor;
  /** Without it, all kinds. */
  due?: Due;
  /** Asked inside the transaction, after the X.509 certificate is signed. False: nothing is stored. */
  isStillDue?: (tx: Transaction, org: IssuingOrg, node: NodeRow) => Promise<boolean>;
};

/**
 * Signs new certificates with the same content and blocks nothing. Returns the node afterwards. A renewal by the server itself is
 * never refused because of the number of certificates: the node would lose its connections. Throws node_revoked,
 * too_many_certificates.
 */
export async function renewCertificates(
  services: Pick<NodeStore, "db" | "system" | "authorities">,
  orgId: number,
  nodeId: number,
  { actor = ourselves, due = { overlay: true, x509: true }, isStillDue = async () => true }: Renewing = {},
): Promise<NodeRecord> {
  const { db, system } = services;
  const isBounded = actor.kind !== "server";
  const org = await readIssuingOrg(db, orgId);
  // With the IPv6 address that issueOverlay may give it below: node.crt names that, too.
  const node = withSecondAddress(org, await findNode(db, orgId, nodeId));
  // Before the transaction, because it is asynchronous: `isStillDue` and storeX509 check inside whether it still counts.
  const x509 = due.x509 ? await signX509(db, org, node, services) : undefined;
  return db.writeFor({ org: orgId }, async (tx) => {
    const before = await findNode(tx, orgId, nodeId);
    if (!(await isStillDue(tx, org, before))) return before;
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

const duePick = certificates.pick("kind", "version", "renewAt");
const offlinePick = computed({ isOffline: truth(0) });

/**
 * SQL condition: a current certificate `c` is not valid yet, although its CA `a` is. It was signed while the clock was ahead, and
 * no engine takes it.
 */
const isEarly = (now: string) => `(c.not_before > ${now} AND a.not_before <= ${now})`;

/**
 * Makes certificates that are not valid yet due for renewal, in one transaction for each organization. Their nodes get others at the
 * next check-in.
 */
export async function makeEarlyDue({
  db,
  system,
  clock,
}: Pick<ServerOptions, "db" | "system" | "clock">): Promise<void> {
  if (clock.doubt() !== undefined) return;
  const early = certificates.pick("id", "orgId", "nodeId");
  const sql = `SELECT ${early.select("c")} FROM certificates c JOIN authorities a ON a.id = c.authority_id
    WHERE c.state = 'current' AND c.renew_at > 0 AND ${isEarly("$1")}`;
  const found = await queryAll(db, early, sql, [system.now()]);
  await forAll(Map.groupBy(found, orgOf), orgOfEntry, ([orgId, rows]) =>
    db.writeFor({ org: orgId }, async (tx) => {
      for (const { id, nodeId } of rows) {
        await certificates.update(tx, { id, state: "current" }, { renewAt: 0 });
        await setRenewal(tx, nodeId);
        await notifyNode(tx, orgId, nodeId);
      }
    }),
  );
}

/**
 * The current certificates of the node $1 at $2 (ms). `renew_at` is when each is due: at once if it is not valid yet, never if it
 * lasts as long as its CA (a renewal would gain nothing, and the new one would be due again at once), unless a change made it due.
 * `is_offline`: an offline CA signed it, and it has not expired.
 */
const currentCertificates = `SELECT c.kind, c.version,
    CASE WHEN a.offline = 1 AND c.not_after > $2 THEN 1 ELSE 0 END AS is_offline,
    CASE WHEN ${isEarly("$2")} THEN 0
      WHEN a.state = 'active' AND c.not_after >= a.not_after AND c.renew_at > 0 THEN ${Number.MAX_SAFE_INTEGER}
      ELSE c.renew_at END AS renew_at
  FROM certificates c JOIN authorities a ON a.id = c.authority_id
  WHERE c.node_id = $1 AND c.state = 'current' ORDER BY c.version`;

/** The kinds of certificates that are due, missing, or of other versions than those of the organization. */
export async function findDue(reader: Reader, org: IssuingOrg, node: NodeRow, now: number): Promise<Due> {
  const found = await reader.all(currentCertificates, [node.id, now]);
  const rows = found.map((row) => ({ ...duePick.parse(row), ...offlinePick.parse(row) }));
  const isFresh = (kind: string) => {
    const ofKind = rows.filter((row) => row.kind === kind);
    return ofKind.length > 0 && ofKind.every(({ renewAt }) => renewAt > now);
  };
  const versions = rows.filter(({ kind }) => kind === "overlay").map(({ version }) => version);
  // The first certificate with an IPv6 address restarts the engine: the rolling update issues it.
  const waitsForUpdate = org.certificateVersion === "both" && org.network6 !== null && !versions.includes(2);
  const hasOtherVersions = !waitsForUpdate && versions.join() !== versionsOf(org).join();
  // Signers renew certificates of an offline CA.
  const isOffline = rows.some((row) => row.isOffline);
  return {
    overlay: !isOffline && (hasOtherVersions || !isFresh("overlay")),
    x509: node.csr !== null && !isFresh("x509"),
  };
}

/**
 * Concurrent renewals: after a long downtime, and when a policy was applied to ten thousand nodes, a server must still answer
 * requests. On SQLite, those that wait for one commit share the next.
 */
const maxAtOnce = 8;

export type Renewals = {
  /**
   * Renews the due certificates of an active node and resolves afterwards. Without `wait`, does nothing while many
   * renewals run: the node asks again soon. With it, waits for its turn. Certificates that only grew old are not renewed for an
   * unsafe engine. A failure is logged, not thrown.
   */
  ensure(orgId: number, nodeId: number, options: { wait: boolean }): Promise<void>;
};

export function makeRenewals(
  services: Pick<NodeStore, "db" | "system" | "authorities"> & Pick<ServerOptions, "log">,
): Renewals {
  /** Renewals by node, including those that wait for their turn. */
  const running = new Map<number, Promise<void>>();
  const inTurn = makeFairQueue({
    atOnce: maxAtOnce,
    // `running` lets each node wait once.
    perCaller: Infinity,
    perOwner: Infinity,
    refusal: () => new AppError("throttled", "Too many certificates wait for their renewal."),
  });
  const renew = async (orgId: number, nodeId: number) => {
    const node = await findNode(services.db, orgId, nodeId);
    if (node.state !== "active") return;
    // `renewAt` 0: a change made it due, for which other nodes may wait, so it is renewed for an unsafe engine, too.
    if (node.renewAt !== 0 && isUnsafe(node.overlayVersion)) return;
    const org = await readIssuingOrg(services.db, orgId);
    const due = await findDue(services.db, org, node, services.system.now());
    // Another replica may have renewed it in the meantime.
    const isStillDue = async (tx: Transaction, present: IssuingOrg, row: NodeRow) => {
      const dueNow = await findDue(tx, present, row, services.system.now());
      return (dueNow.overlay && due.overlay) || (dueNow.x509 && due.x509);
    };
    if (due.overlay || due.x509) await renewCertificates(services, orgId, nodeId, { due, isStillDue });
    // The node is marked as due, but no certificate is: set the real time again, also in what servers have in memory.
    else if (node.renewAt === 0) {
      await services.db.writeFor({ org: orgId }, async (tx) => {
        await setRenewal(tx, nodeId);
        await notifyNode(tx, orgId, nodeId);
      });
    }
  };
  return {
    async ensure(orgId, nodeId, { wait }) {
      const known = running.get(nodeId);
      if (known !== undefined) return known;
      if (!wait && running.size >= maxAtOnce) return;
      const work = inTurn({ owner: orgId, caller: String(nodeId) }, () => renew(orgId, nodeId))
        // Check-ins must not fail if a CA cannot sign: nodes still need to learn of revocations.
        .catch((error: unknown) => {
          // clock-watch.ts reports it, once for all nodes.
          if (error instanceof AppError && ["node_revoked", "clock_doubted"].includes(error.code)) return;
          services.log.error("A certificate cannot be renewed", { node: nodeId, reason: messageOf(error) });
        })
        .finally(() => running.delete(nodeId));
      running.set(nodeId, work);
      await work;
    },
  };
}
