// What check-ins need of organizations and nodes, kept in memory until news about them: with it a check-in costs no
// query, however many nodes there are. As little as an answer needs: with 100,000 nodes each byte counts.

import { AppError } from "../../errors.ts";
import { formatTime } from "../../duration.ts";
import { findNode, type NodeRecord } from "../store/nodes.ts";
import { actionOf } from "./orders.ts";
import { makeInterner } from "../store/intern.ts";
import { numberOf, numberOrNull, type Database } from "../store/database.ts";

export type LiveNode = {
  id: number;
  orgId: number;
  /** Set where it is revoked: then nothing else counts. */
  revoked: NodeRecord | undefined;
  isPending: boolean;
  overlayVersion: string | null;
  /** The end of its present overlay certificate, ms, and as it is written in answers. */
  notAfter: number;
  certificateNotAfter: string;
  renewAt: number | null;
  ownVersion: number;
  /** The order that came with a restore. */
  order: string | undefined;
  /** What it reported last; written here as soon as it is known. */
  applied: number | null;
  confirmed: number;
  said: Said;
  /** There was news about it: it is read again before it counts. */
  isOutdated: boolean;
};

/**
 * What a node has said and is not written yet, for reports.ts. One object a node, changed in place: a record for each
 * check-in is one more that the collector of garbage has to look at.
 */
export type Said = {
  readonly nodeId: number;
  /** ms; 0: all is written. */
  at: number;
  uptime: number | null;
  applied: number | null;
  /**
   * What it said last. They stay when they are written, since they are the same nearly always: with `uptime`, or with
   * `hasState`, they were said again.
   */
  version: string | null;
  overlayState: string | null;
  hasState: boolean;
};

export type Live = {
  /** Where it is in memory. */
  knownNode(orgId: number, nodeId: number): LiveNode | undefined;
  node(orgId: number, nodeId: number): Promise<LiveNode>;
  /** Nothing, where it has to be read first. */
  said(nodeId: number): Said | undefined;
  /** The organization's version, where it is in memory. */
  knownVersion(orgId: number): number | undefined;
  version(orgId: number): Promise<number>;
};

const maxNodes = 200_000;

export function makeLive(db: Database): Live {
  const nodes = new Map<number, LiveNode>();
  const versions = new Map<number, number>();
  const engines = makeInterner();
  /** Rises with each notice: what was read before one is not kept after it. */
  let generation = 0;

  db.listen("organization", (payload) => {
    generation++;
    versions.delete(Number(payload));
  });
  db.listen("node", (payload) => {
    generation++;
    const [orgId, nodeId] = payload.split("/").map(Number);
    versions.delete(orgId ?? 0);
    const known = nodes.get(nodeId ?? 0);
    if (known !== undefined) known.isOutdated = true;
  });
  // The nodes of an organization that is deleted are revoked together, without a notice for each.
  db.listen("auth", (payload) => {
    if (!payload.startsWith("organization")) return;
    generation++;
    nodes.clear();
  });

  const readNode = async (orgId: number, nodeId: number): Promise<LiveNode> => {
    const before = generation;
    const record = await findNode(db, orgId, nodeId);
    const notAfter = await lastDay(db, nodeId);
    const said = nodes.get(nodeId)?.said ?? nothingSaid(nodeId);
    const fresh = liveOf(record, notAfter, said, engines);
    fresh.isOutdated = before !== generation;
    if (nodes.size >= maxNodes) nodes.clear();
    nodes.set(nodeId, fresh);
    return fresh;
  };
  const readVersion = async (orgId: number): Promise<number> => {
    const before = generation;
    const row = await db.get("SELECT config_version FROM organizations WHERE id = $1", [orgId]);
    if (row === undefined) throw new AppError("not_found", "There is no such organization.");
    const version = numberOf(row, "config_version");
    if (before === generation) versions.set(orgId, version);
    return version;
  };

  const knownNode = (orgId: number, nodeId: number) => {
    const known = nodes.get(nodeId);
    return known?.orgId === orgId && !known.isOutdated ? known : undefined;
  };

  return {
    knownNode,
    node: async (orgId, nodeId) => knownNode(orgId, nodeId) ?? readNode(orgId, nodeId),
    said: (nodeId) => nodes.get(nodeId)?.said,
    knownVersion: (orgId) => versions.get(orgId),
    version: async (orgId) => versions.get(orgId) ?? readVersion(orgId),
  };
}

async function lastDay(db: Database, nodeId: number): Promise<number> {
  const row = await db.get(
    "SELECT max(not_after) AS until FROM certificates WHERE node_id = $1 AND state = 'current' AND kind = 'overlay'",
    [nodeId],
  );
  return row === undefined ? 0 : (numberOrNull(row, "until") ?? 0);
}

function nothingSaid(nodeId: number): Said {
  return { nodeId, at: 0, uptime: null, applied: null, version: null, overlayState: null, hasState: false };
}

function liveOf(node: NodeRecord, notAfter: number, said: Said, one: (version: string) => string): LiveNode {
  return {
    id: node.id,
    orgId: node.orgId,
    revoked: node.state === "revoked" ? node : undefined,
    isPending: node.state === "pending",
    overlayVersion: node.overlayVersion === null ? null : one(node.overlayVersion),
    notAfter,
    certificateNotAfter: formatTime(notAfter),
    renewAt: node.renewAt,
    ownVersion: node.ownVersion,
    order: actionOf(node.orderJws) === "restore" ? (node.orderJws ?? undefined) : undefined,
    applied: said.applied ?? node.appliedConfigVersion,
    confirmed: node.confirmedConfigVersion,
    said,
    isOutdated: false,
  };
}
