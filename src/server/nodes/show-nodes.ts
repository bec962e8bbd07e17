// A node as the API shows it: its row, joined with other tables and with memory.

import { formatTime } from "../../base/quantities.ts";
import type { Node } from "../../protocol/node.ts";
import { currentCertificate } from "../config/node-files.ts";
import type { Reader } from "../store/database.ts";
import { isOnline, showNode, type NodeRecord } from "../store/nodes.ts";
import { places, queryAll } from "../store/table.ts";
import { certificates } from "../store/tables/certificates.ts";
import { sentFiles } from "../store/tables/nodes.ts";
import { readConfigVersion, readVersions, type Versions } from "../store/versions.ts";
import type { NodeStore } from "./node-store.ts";
import { appliedMs } from "./contact/version-ages.ts";

export async function showOne(services: NodeStore, org: { id: number }, node: NodeRecord): Promise<Node> {
  const [shown] = await showAll(services, org.id, [node]);
  if (shown === undefined) throw new Error("A node is missing in its own list.");
  return shown;
}

/** Shows nodes, each with the time since which it lacks its configuration. */
export async function showAll(
  services: NodeStore,
  orgId: number,
  records: readonly NodeRecord[],
): Promise<Node[]> {
  const { db } = services;
  const ids = records.map(({ id }) => id);
  const [versions, certificates] = await Promise.all([readVersions(db, orgId), currentCertificates(db, ids)]);
  const shown = records.map((each) =>
    show(services, each, { orgVersion: versions.configVersion, certificates }),
  );
  services.ages?.note(orgId, versions);
  const since = await lackingSince(services, orgId, versions, shown);
  return shown.map((node) => {
    const at = since.get(node.id);
    return { ...node, not_applied_since: at === undefined ? null : formatTime(at) };
  });
}

const sentPick = sentFiles.pick("nodeId", "version", "sentAt");

/**
 * Since when nodes that are online lack their configuration, ms, by id. Undefined: not for `appliedMs` yet, or not known: this
 * server sees only files that were sent, and versions since its start (version-ages.ts).
 */
async function lackingSince(
  { db, system, ages }: NodeStore,
  orgId: number,
  { configVersion }: Versions,
  nodes: readonly Node[],
): Promise<Map<number, number | undefined>> {
  const behind = nodes.filter(
    (node) => node.online && node.phone == null && appliedOf(node) < node.config_version,
  );
  if (behind.length === 0) return new Map();
  const rows = await queryAll(
    db,
    sentPick,
    `SELECT ${sentPick.select()} FROM sent_files WHERE node_id IN (${places(behind, 1)})`,
    behind.map(({ id }) => id),
  );
  const sent = new Map(rows.map((row) => [row.nodeId, row]));
  /** The versions that every healthy node has applied by now. `lastVersion` also counts the versions of single nodes. */
  const settled = ages?.longKnown(orgId);
  const sinceOf = (node: Node): number | undefined => {
    const [applied, newest] = [appliedOf(node), node.config_version];
    const row = sent.get(node.id);
    // The node fetched newer files than it applied: the time of the download counts.
    if (row !== undefined && applied < row.version)
      return row.sentAt <= system.now() - appliedMs ? row.sentAt : undefined;
    if (ages === undefined || settled === undefined) return undefined;
    // Below, `settled` itself is such a version, so there always is one.
    const firstAt = (isSuch: (versions: Versions) => boolean) => ages.since(orgId, isSuch) ?? settled.at;
    if (applied < settled.configVersion) return firstAt((seen) => applied < seen.configVersion);
    // The node's newest version may be its own.
    const isOldOwn = newest > configVersion && newest <= settled.lastVersion;
    return isOldOwn ? firstAt((seen) => newest <= seen.lastVersion) : undefined;
  };
  return new Map(behind.map((node) => [node.id, sinceOf(node)]));
}

const appliedOf = (node: Node) => node.applied_config_version ?? 0;

/** What is shown of a node beside its row. The certificates by the id of the node. */
export type Beside = { orgVersion: number; certificates: Map<number, ShownCertificate[]> };

/** What `show` needs beside the rows of these nodes. */
export async function readBeside(db: Reader, orgId: number, ids: readonly number[]): Promise<Beside> {
  const [orgVersion, certificates] = await Promise.all([
    readConfigVersion(db, orgId),
    currentCertificates(db, ids),
  ]);
  return { orgVersion, certificates };
}

/** As `showAll`, without a query, and without the time since which the node lacks its configuration. */
export function show({ system, changes, reports }: NodeStore, record: NodeRecord, beside: Beside): Node {
  const node = reports?.onto(record) ?? record;
  const online = isOnline(node, system.now(), changes);
  const certificate = currentCertificate(beside.certificates.get(node.id) ?? []);
  return showNode(node, { certificate, orgVersion: beside.orgVersion, online });
}

const shownPick = certificates.pick("nodeId", "kind", "version", "fingerprint", "notBefore", "notAfter");
type ShownCertificate = ReturnType<typeof shownPick.parse>;

async function currentCertificates(
  db: Reader,
  ids: readonly number[],
): Promise<Map<number, ShownCertificate[]>> {
  if (ids.length === 0) return new Map();
  const rows = await queryAll(
    db,
    shownPick,
    `SELECT ${shownPick.select()} FROM certificates
     WHERE node_id IN (${places(ids, 1)}) AND state = 'current' AND kind = 'overlay' ORDER BY version`,
    ids,
  );
  return Map.groupBy(rows, ({ nodeId }) => nodeId);
}
