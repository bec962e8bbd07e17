// The files of one node: config.yml, CA bundle, certificates, node-config.json. Each costs one row and a small part of its
// own beside the organization's view.

import { createHash } from "node:crypto";
import { given } from "../../base/given.ts";
import { joinHostPort } from "../../base/ip.ts";
import { formatTime } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import { can } from "../../engine/features.ts";
import type { DownloadAnswer } from "../../protocol/download.ts";
import { atPlane, maxExits, type NodeConfig } from "../../protocol/organization-files.ts";
import type { SignedSeal } from "../../protocol/seals/seal.ts";
import { certifiedGroups } from "../../protocol/users-groups.ts";
import { portWithOverrides } from "./config.ts";
import { mayIssue } from "../certificates/issue.ts";
import { outlineOthers, withoutBlocklist } from "./comparable-files.ts";
import { findNode, showNode, versionOf, type CurrentCertificate, type NodeRecord } from "../store/nodes.ts";
import type { Renderings, WorkInTurn } from "./renderings.ts";
import type { Reader } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { certificates, type CertificateRow } from "../store/tables/certificates.ts";
import type { OrgView, Trust } from "./organization-views.ts";
import { isExit } from "../../protocol/routing/roles.ts";

/**
 * The files in a form to compare later: config.yml with a count in place of the blocked certificates, and a summary of the
 * other files.
 */
export type Outline = {
  /** Changes exactly when config.yml changes. */
  configDigest: string;
  /** Renders it unless it is cached. */
  config(): Promise<string>;
  others: string;
};

/** `answer` renders the files: most nodes have them already and never ask. */
export type NodeFiles = {
  etag: string;
  configVersion: number;
  /** The tags of the seals in the answer, in their order. */
  sealTags: readonly string[];
  outline: Outline;
  answer(): Promise<DownloadAnswer & { seals?: readonly SignedSeal[] }>;
};

const filePick = certificates.pick(
  "kind",
  "authorityId",
  "version",
  "fingerprint",
  "pem",
  "notBefore",
  "notAfter",
);
type FileCertificate = ReturnType<typeof filePick.parse>;
const currentOf = `SELECT ${filePick.select()} FROM certificates
  WHERE node_id = $1 AND state = 'current' ORDER BY kind, version`;

/**
 * All files of one node. `online`: as its answer says. `inTurn`: renders in turn with other requests. Throws node_revoked, and
 * conflict for another node without certificates.
 */
export async function filesFor(
  { db, renderings }: { db: Reader; renderings: Renderings },
  view: OrgView,
  node: NodeRecord,
  online: boolean,
  inTurn?: WorkInTurn,
): Promise<NodeFiles> {
  const rows = await certificatesOf(db, node);
  const hostCrt = readableBy(rows, node)
    .filter(({ kind }) => kind === "overlay")
    .map(({ pem }) => pem)
    .join("");
  // `keepsFormer`: the node still trusts the CAs that a rotation has just retired.
  const { caPem, x509Cas } = node.keepsFormer ? view.formerTrust : view.trust;
  const nodeCrt = nodeCrtOf(rows, x509Cas);
  if (hostCrt === "") throw new AppError("conflict", `The node ${node.name} is not registered yet.`);
  const config = await renderings.of(view.config, node, inTurn);
  const nodeConfig = nodeConfigOf(view, node);
  // A new version alone changes no file.
  const { config_version: _, ...stable } = nodeConfig;
  const { seals, sealTags } = view;
  // The tag of the newest seal is enough: each seal has the hash of the one before.
  const etag = `"${digest([config.digest, caPem, hostCrt, nodeCrt, JSON.stringify(stable), view.orderKeyProof ?? "", ...sealTags.slice(-1)])}"`;
  const certificate = currentCertificate(rows);
  const answer: NodeFiles["answer"] = async () => ({
    config_version: nodeConfig.config_version,
    etag,
    node: showNode(node, { certificate, orgVersion: view.configVersion, online }),
    order_key: view.orderKey,
    ...(view.orderKeyProof === null ? {} : { order_key_proof: view.orderKeyProof }),
    ...(seals.length === 0 ? {} : { seals }),
    files: {
      "config.yml": await config.text(),
      "ca.crt": caPem,
      "host.crt": hostCrt,
      ...(nodeCrt === "" ? {} : { "node.crt": nodeCrt }),
      "node-config.json": `${JSON.stringify(nodeConfig, null, 2)}\n`,
    },
  });
  const outline: Outline = {
    configDigest: config.digest,
    config: async () => withoutBlocklist(await config.text(), view.config),
    others: outlineOthers({ caPem, x509Cas, rows: readableBy(rows, node), stable }),
  };
  return { etag, configVersion: nodeConfig.config_version, sealTags, outline, answer };
}

/** The newest overlay certificates of a node, whatever their state. */
const newestOverlayOf = `SELECT ${filePick.select()} FROM certificates WHERE node_id = $1 AND kind = 'overlay'
  AND created_at = (SELECT max(created_at) FROM certificates WHERE node_id = $1 AND kind = 'overlay') ORDER BY version`;

/**
 * The current certificates. A node that has lost a group has no current overlay certificate until the next one is
 * signed. If signing fails, the node still gets its configuration, with the certificate that it has.
 */
async function certificatesOf(db: Reader, node: NodeRecord): Promise<readonly FileCertificate[]> {
  const rows = await queryAll(db, filePick, currentOf, [node.id]);
  if (rows.some(({ kind }) => kind === "overlay")) return rows;
  // The node may have been revoked since it was read.
  mayIssue(await findNode(db, node.orgId, node.id));
  return [...(await queryAll(db, filePick, newestOverlayOf, [node.id])), ...rows];
}

/** The leaf with its CA as they were signed, then the other CA, which may have signed certificates of peers. */
function nodeCrtOf(rows: readonly FileCertificate[], x509Cas: Trust["x509Cas"]): string {
  const row = rows.find(({ kind }) => kind === "x509");
  if (row === undefined) return "";
  const others = x509Cas.filter(({ id }) => id !== row.authorityId);
  return row.pem + others.map(({ pem }) => pem).join("");
}

/** The certificates that the node's engine reads. Others are left out: their renewal must not change the files of this node. */
function readableBy(rows: readonly FileCertificate[], node: NodeRecord): readonly FileCertificate[] {
  const hasVersion1 = rows.some(({ kind, version }) => kind === "overlay" && version === 1);
  if (!hasVersion1 || can(node.overlayVersion, "certificate_v2")) return rows;
  return rows.filter(({ version }) => version === 1);
}

/** The exits that a node may use, which alone gives it no default route: root of its machine decides that. */
function exitsFor({ exits, config }: OrgView, node: NodeRecord): NonNullable<NodeConfig["exits"]> {
  const groups = ["any", ...certifiedGroups(node)];
  const usable = exits.filter(
    ({ id, exitGroups }) => id !== node.id && exitGroups.some((each) => groups.includes(each)),
  );
  // With certificates of both versions, tunnels carry no IPv6.
  const carriesIpv6 = config.certificateVersion === 2;
  return usable
    .slice(0, maxExits)
    .map(({ name, ip, ip6 }) => ({ name, ip_address: ip, ip_address6: carriesIpv6 ? ip6 : null }));
}

/** How the node reaches lighthouses and relays where UDP is blocked. A lighthouse needs none: the nodes come to it. */
function tcpWays({ byTcp, config }: OrgView, node: NodeRecord): NodeConfig["tcp"] {
  if (node.isLighthouse) return undefined;
  const ways = byTcp
    .filter(({ id }) => id !== node.id)
    .map((hub) => {
      const { ip, publicIp, tcp } = hub;
      const at = tcp === atPlane ? atPlane : joinHostPort(publicIp ?? "", Number(tcp));
      return [ip, { at, port: portWithOverrides(hub, config.overrides) }] as const;
    });
  return ways.length === 0 ? undefined : Object.fromEntries(ways);
}

function nodeConfigOf(view: OrgView, node: NodeRecord): NodeConfig {
  const exits = exitsFor(view, node);
  return {
    schema: 1,
    node_id: node.id,
    name: node.name,
    org_slug: view.slug,
    ip_address: node.ip,
    ip_address6: node.ip6,
    network: view.network,
    mode: node.mode ?? "desktop",
    is_lighthouse: node.isLighthouse,
    is_relay: node.isRelay,
    config_version: versionOf(node, view.configVersion),
    order_key: view.orderKey,
    registered_at: formatTime(node.registeredAt ?? node.createdAt),
    ...(node.ephemeralSilenceS === null ? {} : { ephemeral: true }),
    ...(exits.length === 0 ? {} : { exits }),
    ...(isExit(node) ? { is_exit: true } : {}),
    ...(view.flows ? { flows: true } : {}),
    ...(view.portMapping ? {} : { port_mapping: false }),
    ...given({ tcp: tcpWays(view, node) }),
  };
}

/** The overlay certificate of the highest version among a node's current certificates, which are sorted by version. */
export function currentCertificate(
  rows: readonly Pick<CertificateRow, "kind" | "fingerprint" | "version" | "notBefore" | "notAfter">[],
): CurrentCertificate {
  const row = rows.findLast(({ kind }) => kind === "overlay");
  if (row === undefined) return null;
  return {
    fingerprint: row.fingerprint,
    version: row.version === 2 ? 2 : 1,
    not_before: formatTime(row.notBefore),
    not_after: formatTime(row.notAfter),
  };
}

/** 27 characters of base64url: 162 bits of the hash. */
function digest(parts: readonly string[]): string {
  const sum = createHash("sha256");
  for (const part of parts) sum.update(part).update("\0");
  return sum.digest("base64url").slice(0, 27);
}
