// A node as the database holds it and as the API shows it. `showNode` is an allow-list: no hash, no key, no order.

import * as v from "valibot";
import { formatTime, timeOrNull } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import { onlineMs } from "../../api/values.ts";
import { findingOf } from "../../protocol/finding-kinds.ts";
import type { Node } from "../../protocol/node.ts";
import { DataPlaneReport, jsonTextOf } from "../../protocol/values.ts";
import type { Reader, Row } from "./database.ts";
import { nodesWithSightings } from "./sightings.ts";
import { queryNumber, queryOne } from "./table.ts";
import { nodes, type NodeRow, sightings, type SightingRow } from "./tables/nodes.ts";
import { permissionOf } from "./tables/update-permission.ts";
import { isExit, isHub } from "../../protocol/routing/roles.ts";

export type NodeRecord = NodeRow & {
  [K in "lastCheckinAt" | "appliedConfigVersion" | "overlayState" | "dataPlane"]: SightingRow[K] | null;
};

/** The sighting of a node that has never checked in. */
export const neverSeen = {
  lastCheckinAt: null,
  appliedConfigVersion: null,
  overlayState: null,
  dataPlane: null,
};

const sightingPick = sightings.pick(
  "lastCheckinAt",
  "reportedVersion",
  "appliedConfigVersion",
  "overlayState",
  "dataPlane",
);

/** For SELECT from `nodesWithSightings`. */
export const nodeColumns = `${nodes.select()}, ${sightingPick.select()}`;
const oneNode = `SELECT ${nodeColumns} FROM ${nodesWithSightings} WHERE org_id = $1 AND id = $2`;

/** Reads `nodeColumns`. */
export function nodeRecordOf(row: Row): NodeRecord {
  const node = nodes.parse(row);
  if (row["last_checkin_at"] === null) return { ...node, ...neverSeen };
  const { reportedVersion, ...rest } = sightingPick.parse(row);
  const agentVersion = reportedVersion ?? node.agentVersion;
  return { ...node, ...rest, agentVersion };
}
/** For queryAll and queryOne. */
export const nodeRecord = { parse: nodeRecordOf };

/** The configuration version that a node should have, if its organization has `orgVersion`. */
export function versionOf(node: Pick<NodeRow, "ownVersion">, orgVersion: number): number {
  return Math.max(node.ownVersion, orgVersion);
}

/** Throws not_found. Finds revoked nodes too, which are read by id. */
export async function findNode(reader: Reader, orgId: number, id: number): Promise<NodeRecord> {
  const node = await queryOne(reader, nodeRecord, oneNode, [orgId, id]);
  if (node === undefined) throw new AppError("not_found", "There is no such node.");
  return node;
}

/** `oneNode` with one column more. */
const oneWithVersion = oneNode.replace(
  " FROM ",
  ", (SELECT config_version FROM organizations WHERE id = $1) AS shared_version FROM ",
);
const withVersion = {
  parse: (row: Row) => ({ node: nodeRecordOf(row), configVersion: Number(row["shared_version"]) }),
};

/** The node, and the configuration version of its organization at the same moment. Throws not_found. */
export async function findWithVersion(reader: Reader, orgId: number, id: number) {
  const found = await queryOne(reader, withVersion, oneWithVersion, [orgId, id]);
  if (found === undefined) throw new AppError("not_found", "There is no such node.");
  return found;
}

/** For a change of a node that was revoked meanwhile: callers see that in the list. */
export function revokedNode({ name }: Pick<NodeRow, "name">): AppError {
  return new AppError("not_found", `The node ${name} is revoked.`);
}

/** Whether the node belongs to an imported network and has not registered: it is active, but never contacts the server. */
export function isHandRun({ state, registeredAt }: Pick<NodeRow, "state" | "registeredAt">): boolean {
  return state === "active" && registeredAt === null;
}

/** `isUnclaimed`: no machine has registered as the node with this name yet. */
export function nameTaken(name: string, { isUnclaimed = false } = {}): AppError {
  const more = isUnclaimed ? " Its machine registers with a token that was made for this node." : "";
  return new AppError("name_taken", `A node named ${name} already exists.${more}`, {
    errors: { name: ["This name is taken."] },
    hint: "Choose another name, or delete the node that has it.",
  });
}

/** Throws conflict if another node has taken the name of a node that comes back. */
export async function requireNameStillFree(
  tx: Reader,
  { orgId, name }: Pick<NodeRow, "orgId" | "name">,
  details: { hint?: string } = {},
): Promise<void> {
  const rivals = "SELECT count(*) AS n FROM nodes WHERE org_id = $1 AND name = $2 AND state <> 'revoked'";
  if ((await queryNumber(tx, rivals, [orgId, name])) > 0)
    throw new AppError("conflict", `Another node is named ${name} now.`, details);
}

/**
 * The version that a phone counts as having confirmed. A phone never confirms one, and nothing may wait for it. One less than
 * `atLeisure` (upkeep.ts), which no confirmation reaches.
 */
export const countsAsConfirmed = Number.MAX_SAFE_INTEGER - 1;

export type CurrentCertificate = Node["certificate"];

/** Whether the node checked in so lately that it counts as online. `now`: ms. */
export function isSeen({ lastCheckinAt }: Pick<NodeRecord, "lastCheckinAt">, now: number): boolean {
  return lastCheckinAt !== null && lastCheckinAt > now - onlineMs;
}

/** `changes`: the open polls of this server; the record holds the check-ins of all servers. */
export function isOnline(
  node: Pick<NodeRecord, "id" | "orgId" | "state" | "lastCheckinAt">,
  now: number,
  changes: { isHeld(organizationId: number, nodeId: number): boolean },
): boolean {
  return node.state === "active" && (isSeen(node, now) || changes.isHeld(node.orgId, node.id));
}

export function showNode(
  node: NodeRecord,
  shown: { certificate: CurrentCertificate; orgVersion: number; online: boolean },
): Node {
  return {
    id: node.id,
    name: node.name,
    ip_address: node.ip,
    ip_address6: node.ip6,
    subnets: node.subnets,
    state: node.state,
    online: shown.online,
    mode: node.mode,
    is_lighthouse: node.isLighthouse,
    is_relay: node.isRelay,
    is_name_server: node.isNameServer,
    exit_groups: node.exitGroups,
    public_ip: node.publicIp,
    external_port: node.externalPort,
    groups: node.groups,
    config_overrides: node.configOverrides,
    certificate: shown.certificate,
    config_version: versionOf(node, shown.orgVersion),
    applied_config_version: node.appliedConfigVersion,
    finding: findingOf(node.overlayState) ?? null,
    agent_version: node.agentVersion,
    overlay_version: node.overlayVersion,
    data_plane: readDataPlane(node.dataPlane),
    may_update: [...permissionOf(node.mayUpdate).may],
    platform: node.platform,
    last_checkin_at: timeOrNull(node.lastCheckinAt),
    created_at: formatTime(node.createdAt),
    revoked_at: timeOrNull(node.revokedAt),
    ...(node.state === "revoked" && node.revokedBy !== null ? { revoked_by: node.revokedBy } : {}),
    ...(node.state === "revoked" && node.revokeReason !== null ? { revoke_reason: node.revokeReason } : {}),
    owner_id: node.ownerId,
    owner_groups: node.ownerGroups,
    ephemeral: node.ephemeralSilenceS !== null,
    phone: showPhone(node),
  };
}

function readDataPlane(text: string | null): DataPlaneReport | null {
  const parsed = v.safeParse(StoredDataPlane, text);
  return parsed.success ? parsed.output : null;
}

const StoredDataPlane = jsonTextOf(DataPlaneReport);

function showPhone({ phone, importedAt, createdAt, renewAt }: NodeRecord): Node["phone"] {
  if (phone === null) return null;
  // 0: due at once, which is no time to show.
  const import_by = renewAt === null || renewAt === 0 ? null : formatTime(renewAt);
  return { system: phone, imported_at: formatTime(importedAt ?? createdAt), import_by };
}

/** Whether other nodes have it in their configuration: lighthouses, relays, routers of subnets and exits. */
export const isConfigured = (
  node: Pick<NodeRow, "isLighthouse" | "isRelay" | "subnets" | "exitGroups">,
): boolean => isHub(node) || node.subnets.length > 0 || isExit(node);
