// Caches the organizations and nodes that check in, so that a check-in runs no query. A notification outdates them, and they are
// read again. Holds only what an answer needs: with 100,000 nodes each byte counts.

import { readOrder, type UpdateOrder } from "../../../protocol/updates/order.ts";
import { formatTime } from "../../../base/quantities.ts";
import { findNode, type NodeRecord } from "../../store/nodes.ts";
import { confirmBy } from "../lifecycle/confirmations-due.ts";
import { makeConfirmations } from "./confirmations.ts";
import { actionOf } from "./orders.ts";
import { makeInterner } from "../../store/intern.ts";
import { makeOrKnown } from "../../store/or-known.ts";
import type { Database } from "../../store/database.ts";
import { queryOne } from "../../store/table.ts";
import { certificates } from "../../store/tables/certificates.ts";
import { readVersions } from "../../store/versions.ts";
import type { VersionAges } from "./version-ages.ts";
import { isHub } from "../../../protocol/routing/roles.ts";

export type LiveNode = {
  id: number;
  orgId: number;
  /** The row of a revoked node, for its order; undefined for all others. If it is set, the other members do not count. */
  revoked: NodeRecord | undefined;
  isPending: boolean;
  /** An ephemeral node that may come back. `revoked` is undefined then. */
  isEnded: boolean;
  isEphemeral: boolean;
  overlayVersion: string | null;
  /** The networks that it offers to route, as JSON; undefined: none. */
  advertised: string | undefined;
  /** When its current overlay certificate expires, ms. */
  notAfter: number;
  /** The same as text for answers. */
  certificateNotAfter: string;
  /** When its certificates are due for renewal, ms; null: never. */
  renewAt: number | null;
  /** The last configuration version that concerns this node alone. */
  ownVersion: number;
  /** The signed order, if the node was restored. */
  order: string | undefined;
  /** The configuration version that it reported last, also before that is written. */
  applied: number | null;
  /** The configuration version that it has in force. */
  confirmed: number;
  /** A lighthouse or relay, and how it is reached by TCP. */
  isHub: boolean;
  tcp: string | null;
  /** As the columns of the same names. */
  mayUpdate: string | null;
  sealRefused: string | null;
  updateOrder: UpdateOrder | undefined;
  /** Until when the user has to confirm the node; unset before the user was told. */
  confirmBy: string | undefined;
  report: Report;
  /** A notification came: read the node again before use. */
  isOutdated: boolean;
};

/**
 * The unwritten report of a node, for reports.ts. One object per node, changed in place: an object per check-in would add
 * work for the garbage collector.
 */
export type Report = {
  readonly nodeId: number;
  /** The time of the check-in, ms; 0: everything is written. */
  at: number;
  uptime: number | null;
  applied: number | null;
  /**
   * The last values. They stay after the write, because they rarely change. Reported since the last write: the version if `uptime`
   * is not null, the state if `hasState` is true.
   */
  version: string | null;
  overlayState: string | null;
  hasState: boolean;
  /** A DataPlaneReport as JSON; `hasDataPlane` if it was reported again. */
  dataPlane: string | null;
  hasDataPlane: boolean;
};

export type Live = {
  /** The cached node, if it is up to date. */
  knownNode(orgId: number, nodeId: number): LiveNode | undefined;
  node(orgId: number, nodeId: number): Promise<LiveNode>;
  report(nodeId: number): Report | undefined;
  /** The organization's version, if it is cached. */
  knownVersion(orgId: number): number | undefined;
  version(orgId: number): Promise<number>;
  /** Stores the version that the node confirmed. Nothing else of the node changes: this server does not read it again. */
  confirm(node: LiveNode, version: number): Promise<void>;
};

const maxNodes = 200_000;

export function makeLive(db: Database, ages: Pick<VersionAges, "note">): Live {
  const nodes = new Map<number, LiveNode>();
  /** Rises with each notification: a read that began before it is not cached. */
  let generation = 0;
  const versions = makeVersions(db, ages, () => generation);
  /** Reads; while the database is away, returns what is known, outdated or not. */
  const orKnown = makeOrKnown();
  /** Equal texts of many nodes, such as engine versions, take memory once. */
  const engines = makeInterner();
  /** Names this process in its own notifications, see confirmations.ts. */
  const replica = crypto.randomUUID();
  db.listen("organization", (payload) => {
    generation++;
    versions.outdate(Number(payload));
  });
  db.listen("node", (payload) => {
    generation++;
    const [orgId, nodeId, confirmedBy] = payload.split("/");
    if (confirmedBy === replica) return;
    versions.outdate(Number(orgId));
    const known = nodes.get(Number(nodeId));
    if (known !== undefined) known.isOutdated = true;
  });
  // The nodes of a deleted organization are revoked without a notification for each.
  db.listen("auth", (payload) => {
    if (!payload.startsWith("organization")) return;
    generation++;
    for (const known of nodes.values()) known.isOutdated = true;
  });

  const readNode = async (orgId: number, nodeId: number): Promise<LiveNode> => {
    const startGeneration = generation;
    const record = await findNode(db, orgId, nodeId);
    const notAfter = await certificateEnd(db, nodeId);
    const until = record.ownerId === null ? undefined : await confirmBy(db, nodeId);
    const report = nodes.get(nodeId)?.report ?? emptyReport(nodeId);
    const fresh = liveOf(record, { notAfter, confirmBy: until }, report, engines);
    fresh.isOutdated = startGeneration !== generation;
    if (nodes.size >= maxNodes) nodes.clear();
    nodes.set(nodeId, fresh);
    return fresh;
  };

  const knownNode = (orgId: number, nodeId: number) => {
    const known = nodes.get(nodeId);
    return known?.orgId === orgId && !known.isOutdated ? known : undefined;
  };

  return {
    knownNode,
    async node(orgId, nodeId) {
      const known = knownNode(orgId, nodeId);
      if (known !== undefined) return known;
      const outdated = nodes.get(nodeId);
      return orKnown(() => readNode(orgId, nodeId), outdated?.orgId === orgId ? outdated : undefined);
    },
    report: (nodeId) => nodes.get(nodeId)?.report,
    knownVersion: versions.known,
    version: async (orgId) =>
      versions.known(orgId) ?? orKnown(() => versions.read(orgId), versions.lastKnown(orgId)),
    confirm: makeConfirmations(db, replica, nodes),
  };
}

/** The configuration versions of organizations. `generation`: rises with each notification. */
function makeVersions(db: Database, ages: Pick<VersionAges, "note">, generation: () => number) {
  const versions = new Map<number, { version: number; isOutdated: boolean }>();
  /** Reads under way: a change of names wakes a thousand polls at once, which share one. */
  const reading = new Map<number, { generation: number; version: Promise<number> }>();
  return {
    outdate(orgId: number): void {
      const last = versions.get(orgId);
      if (last !== undefined) last.isOutdated = true;
    },
    /** Undefined if it is outdated. */
    known(orgId: number): number | undefined {
      const last = versions.get(orgId);
      return last?.isOutdated === false ? last.version : undefined;
    },
    /** Also if it is outdated. */
    lastKnown: (orgId: number) => versions.get(orgId)?.version,
    read(orgId: number): Promise<number> {
      const startGeneration = generation();
      const running = reading.get(orgId);
      // A read that began before a notification may have missed its change.
      if (running?.generation === startGeneration) return running.version;
      const version = readVersions(db, orgId)
        .then((read) => {
          ages.note(orgId, read);
          const isOutdated = startGeneration !== generation();
          versions.set(orgId, { version: read.configVersion, isOutdated });
          return read.configVersion;
        })
        .finally(() => {
          if (reading.get(orgId)?.generation === startGeneration) reading.delete(orgId);
        });
      reading.set(orgId, { generation: startGeneration, version });
      return version;
    },
  };
}

/** A current certificate, else the last former one: a node that has lost a group has none until it fetches the next one. */
const newestCertificate = `SELECT not_after FROM certificates
  WHERE node_id = $1 AND state <> 'blocked' AND kind = 'overlay'
  ORDER BY CASE state WHEN 'current' THEN 0 ELSE 1 END, not_after DESC LIMIT 1`;

/** When the node's last overlay certificate expires, ms; 0 without one that peers accept. */
async function certificateEnd(db: Database, nodeId: number): Promise<number> {
  return (await queryOne(db, certificates.pick("notAfter"), newestCertificate, [nodeId]))?.notAfter ?? 0;
}

function emptyReport(nodeId: number): Report {
  return {
    nodeId,
    at: 0,
    uptime: null,
    applied: null,
    version: null,
    overlayState: null,
    hasState: false,
    dataPlane: null,
    hasDataPlane: false,
  };
}

function liveOf(
  node: NodeRecord,
  { notAfter, confirmBy }: Pick<LiveNode, "notAfter" | "confirmBy">,
  report: Report,
  intern: (version: string) => string,
): LiveNode {
  return {
    id: node.id,
    orgId: node.orgId,
    revoked: node.state === "revoked" && node.endedAt === null ? node : undefined,
    isEnded: node.endedAt !== null,
    isEphemeral: node.ephemeralSilenceS !== null,
    advertised: node.advertised.length === 0 ? undefined : JSON.stringify(node.advertised),
    isPending: node.state === "pending",
    overlayVersion: node.overlayVersion === null ? null : intern(node.overlayVersion),
    notAfter,
    certificateNotAfter: formatTime(notAfter),
    renewAt: node.renewAt,
    ownVersion: node.ownVersion,
    order: actionOf(node.orderJws) === "restore" ? (node.orderJws ?? undefined) : undefined,
    applied: report.applied ?? node.appliedConfigVersion,
    confirmed: node.confirmedConfigVersion,
    isHub: isHub(node),
    tcp: node.tcp,
    mayUpdate: node.mayUpdate === null ? null : intern(node.mayUpdate),
    sealRefused: node.sealRefused === null ? null : intern(node.sealRefused),
    updateOrder: node.updateOrder === null ? undefined : readOrder(node.updateOrder),
    confirmBy,
    report,
    isOutdated: false,
  };
}
