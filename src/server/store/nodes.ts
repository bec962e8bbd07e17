// A node as the database holds it and as the API shows it. What is shown is an allow-list: no hash, no key, no order.

import * as v from "valibot";
import { formatTime } from "../../duration.ts";
import { AppError } from "../../errors.ts";
import type { Node } from "../../protocol.ts";
import type { YamlMap } from "../../yaml.ts";
import {
  numberOf,
  numberOrNull,
  textOf,
  textOrNull,
  textsOf,
  truthOf,
  type Reader,
  type Row,
} from "./database.ts";
import { nodesWithSightings } from "./sightings.ts";

const State = v.picklist(["pending", "active", "revoked"]);
export type NodeRecord = {
  id: number;
  orgId: number;
  name: string;
  ip: string;
  ip6: string | null;
  state: v.InferOutput<typeof State>;
  mode: "server" | "desktop" | null;
  isLighthouse: boolean;
  isRelay: boolean;
  publicIp: string | null;
  externalPort: number | null;
  listenPort: number | null;
  hostPublicKey: string | null;
  csr: string | null;
  csrKeySha256: string | null;
  groups: string[];
  subnets: string[];
  overrides: YamlMap;
  registeredWith: number | null;
  platform: string | null;
  agentVersion: string | null;
  overlayVersion: string | null;
  lastCheckinAt: number | null;
  appliedConfigVersion: number | null;
  confirmedConfigVersion: number;
  /** The version that concerned this node alone, see versions.ts. */
  ownVersion: number;
  /** It still trusts the CAs that its organization has just retired. */
  keepsFormer: boolean;
  /** When a certificate of it is to be renewed; null without certificates. */
  renewAt: number | null;
  createdAt: number;
  registeredAt: number | null;
  revokedAt: number | null;
  revokeReason: string | null;
  orderSeq: number;
  orderJws: string | null;
};

const Overrides = v.record(v.string(), v.any());

/** Of `nodesWithSightings`; a row of `nodes` alone (RETURNING *) says nothing of check-ins. */
export function nodeRecordOf(row: Row): NodeRecord {
  const said = (column: string) => (row[column] === undefined ? null : numberOrNull(row, column));
  const mode = textOrNull(row, "mode");
  return {
    id: numberOf(row, "id"),
    orgId: numberOf(row, "org_id"),
    name: textOf(row, "name"),
    ip: textOf(row, "ip"),
    ip6: textOrNull(row, "ip6"),
    state: v.parse(State, row["state"]),
    mode: mode === "server" || mode === "desktop" ? mode : null,
    isLighthouse: truthOf(row, "is_lighthouse"),
    isRelay: truthOf(row, "is_relay"),
    publicIp: textOrNull(row, "public_ip"),
    externalPort: numberOrNull(row, "external_port"),
    listenPort: numberOrNull(row, "listen_port"),
    hostPublicKey: textOrNull(row, "host_public_key"),
    csr: textOrNull(row, "csr"),
    csrKeySha256: textOrNull(row, "csr_key_sha256"),
    groups: textsOf(row, "groups"),
    subnets: textsOf(row, "subnets"),
    overrides: v.parse(Overrides, JSON.parse(textOf(row, "config_overrides"))),
    registeredWith: numberOrNull(row, "registered_with"),
    platform: textOrNull(row, "platform"),
    agentVersion: textOrNull(row, row["reported_version"] ? "reported_version" : "agent_version"),
    overlayVersion: textOrNull(row, "overlay_version"),
    lastCheckinAt: said("last_checkin_at"),
    appliedConfigVersion: said("applied_config_version"),
    confirmedConfigVersion: numberOf(row, "confirmed_config_version"),
    ownVersion: numberOf(row, "own_version"),
    keepsFormer: truthOf(row, "keeps_former"),
    renewAt: numberOrNull(row, "renew_at"),
    createdAt: numberOf(row, "created_at"),
    registeredAt: numberOrNull(row, "registered_at"),
    revokedAt: numberOrNull(row, "revoked_at"),
    revokeReason: textOrNull(row, "revoke_reason"),
    orderSeq: numberOf(row, "order_seq"),
    orderJws: textOrNull(row, "order_jws"),
  };
}

/** The configuration version that a node should have, where its organization has `orgVersion`. */
export function versionOf(node: Pick<NodeRecord, "ownVersion">, orgVersion: number): number {
  return Math.max(node.ownVersion, orgVersion);
}

/** Throws not_found. Revoked nodes are found: their tombstones are read by id. */
export async function findNode(reader: Pick<Reader, "get">, orgId: number, id: number): Promise<NodeRecord> {
  const row = await reader.get(`SELECT * FROM ${nodesWithSightings} WHERE org_id = $1 AND id = $2`, [
    orgId,
    id,
  ]);
  if (row === undefined) throw new AppError("not_found", "There is no such node.");
  return nodeRecordOf(row);
}

/** Of an imported network, on a machine that has not registered: it takes part, but hears nothing from us. */
export function isHandRun({ state, registeredAt }: Pick<NodeRecord, "state" | "registeredAt">): boolean {
  return state === "active" && registeredAt === null;
}

/** `waits`: no machine has registered as it yet. */
export function nameTaken(name: string, waits = false): AppError {
  const its = waits ? " Its machine registers with a token that was made for this node." : "";
  return new AppError("name_taken", `There is a node named ${name} already.${its}`, {
    errors: { name: ["This name is taken."] },
    hint: "Choose another name, or delete the node that has it.",
  });
}

export type CurrentCertificate = Node["certificate"];

/** A node is online if it holds a poll, or has checked in within this time (decisions 4). */
export const onlineMs = 150_000;

export function showNode(
  node: NodeRecord,
  shown: { certificate: CurrentCertificate; orgVersion: number; online: boolean },
): Node {
  const time = (ms: number | null) => (ms === null ? null : formatTime(ms));
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
    public_ip: node.publicIp,
    external_port: node.externalPort,
    groups: node.groups,
    config_overrides: node.overrides,
    certificate: shown.certificate,
    config_version: versionOf(node, shown.orgVersion),
    applied_config_version: node.appliedConfigVersion,
    agent_version: node.agentVersion,
    overlay_version: node.overlayVersion,
    platform: node.platform,
    last_checkin_at: time(node.lastCheckinAt),
    created_at: formatTime(node.createdAt),
    revoked_at: time(node.revokedAt),
  };
}
