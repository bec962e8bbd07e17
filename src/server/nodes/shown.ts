// A node as the API shows it: its row, and what stands in other tables and in memory.

import type { Node } from "../../protocol/node.ts";
import { currentCertificate } from "../config/views.ts";
import type { Reader } from "../store/database.ts";
import { isOnline, showNode, type NodeRecord } from "../store/nodes.ts";
import { queryAll } from "../store/table.ts";
import { certificates } from "../store/tables/certificates.ts";
import { readConfigVersion } from "../store/versions.ts";
import type { NodeStore } from "./node-store.ts";

export async function showOne(services: NodeStore, org: { id: number }, node: NodeRecord): Promise<Node> {
  return show(services, node, await readBeside(services.db, org.id, [node.id]));
}

/** What stands in other tables. */
export type Beside = { orgVersion: number; certificates: Map<number, ShownCertificate[]> };

export async function readBeside(db: Reader, orgId: number, ids: readonly number[]): Promise<Beside> {
  const [orgVersion, certificates] = await Promise.all([
    readConfigVersion(db, orgId),
    currentCertificates(db, ids),
  ]);
  return { orgVersion, certificates };
}

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
  const places = ids.map((_, at) => `$${at + 1}`).join(", ");
  const rows = await queryAll(
    db,
    shownPick,
    `SELECT ${shownPick.select()} FROM certificates
     WHERE node_id IN (${places}) AND state = 'current' AND kind = 'overlay' ORDER BY version`,
    ids,
  );
  return Map.groupBy(rows, ({ nodeId }) => nodeId);
}
