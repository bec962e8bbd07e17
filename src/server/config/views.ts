// The files of a node: config.yml, CA bundle, certificates, node-config.json. The part that all nodes of an organization
// share is read once per config_version and cached. Each node costs one row and a small part of its own.

import { createHash } from "node:crypto";
import { formatTime } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import { can } from "../../engine/features.ts";
import type { DownloadAnswer } from "../../protocol/download.ts";
import type { NodeConfig } from "../../protocol/stored.ts";
import type { OrderKey } from "../../protocol/values.ts";
import { readBlocklist } from "../certificates/blocklist.ts";
import { mayIssue } from "../certificates/issue.ts";
import { inSlices } from "../http/heavy-work.ts";
import { makeConfigView, type ConfigView } from "./config.ts";
import { outlineOthers, withoutBlocklist } from "./outline.ts";
import { testable, type TestableRules } from "../policy/firewall.ts";
import type { Rule } from "../../api/rules.ts";
import { findNode, showNode, versionOf, type CurrentCertificate, type NodeRecord } from "../store/nodes.ts";
import type { Renderings, WorkInTurn } from "./renderings.ts";
import { listRules } from "../policy/stored-rules.ts";
import type { Reader } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import {
  authorities,
  type AuthorityRow,
  certificates,
  type CertificateRow,
} from "../store/tables/certificates.ts";
import { nodes } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";
import { relayTraffic } from "../store/tables/paths.ts";
import { readConfigVersion } from "../store/versions.ts";

export type OrgView = {
  id: number;
  slug: string;
  network: string;
  network6: string | null;
  configVersion: number;
  config: ConfigView;
  /** For tests of the rules. Made at the first one. */
  testable(): Promise<TestableRules>;
  /** The CAs that nodes trust: two of each kind during a rotation. */
  trust: Trust;
  /** The CAs that nodes trust while the rotation lets them keep the former ones (`NodeRow.keepsFormer`). */
  formerTrust: Trust;
  orderKey: OrderKey;
  orderKeyProof: string | null;
};

/** The bundle that engines read, and the X.509 CAs for services on the nodes. */
export type Trust = { caPem: string; x509Cas: readonly { id: number; pem: string }[] };

export type Views = {
  of(reader: Reader, orgId: number): Promise<OrgView>;
};

const maxKept = 1000;

export function makeViews(now: () => number): Views {
  const kept = new Map<number, OrgView>();
  /** After a change, all nodes ask at once: one of them reads. */
  const loading = new Map<number, { version: number; view: Promise<OrgView> }>();
  const load = async (reader: Reader, orgId: number): Promise<OrgView> => {
    const view = await loadView(reader, orgId, now());
    if (kept.size >= maxKept) kept.clear();
    kept.set(orgId, view);
    return view;
  };
  return {
    async of(reader, orgId) {
      const version = await readConfigVersion(reader, orgId);
      const known = kept.get(orgId);
      if (known?.configVersion === version) return known;
      const begun = loading.get(orgId);
      // That read began after the change: `version` was in the database then.
      if (begun?.version === version) return begun.view;
      const view = load(reader, orgId);
      const entry = { version, view };
      loading.set(orgId, entry);
      try {
        return await view;
      } finally {
        if (loading.get(orgId) === entry) loading.delete(orgId);
      }
    },
  };
}

const hubPick = nodes.pick("id", "ip", "isLighthouse", "isRelay", "publicIp", "externalPort", "subnets");
const caPick = authorities.pick("id", "kind", "certificate", "retiredAt");

async function loadView(reader: Reader, orgId: number, now: number): Promise<OrgView> {
  const org = await organizations.find(reader, { id: orgId });
  if (org === undefined) throw new AppError("not_found", "There is no such organization.");
  const rules = await listRules(reader, { id: orgId });
  const hubs = await queryAll(
    reader,
    hubPick,
    `SELECT ${hubPick.select()} FROM nodes
     WHERE org_id = $1 AND state = 'active' AND (is_lighthouse = 1 OR is_relay = 1 OR subnets <> '[]') ORDER BY id`,
    [orgId],
  );
  const cas = await queryAll(
    reader,
    caPick,
    // The rotation that retires a CA deletes its key at the end.
    `SELECT ${caPick.select()} FROM authorities
     WHERE org_id = $1 AND (retired_at IS NULL OR private_key_sealed <> '') AND not_after > $2 ORDER BY id`,
    [orgId, now],
  );
  const config = makeConfigView({
    slug: org.slug,
    aliveInterval: org.aliveInterval,
    overrides: org.configOverrides,
    certificateVersion: org.certificateVersion,
    rules,
    nodeNames: await namesIn(reader, orgId, rules),
    hubs,
    pausedRelays: (await relayTraffic.all(reader, { orgId, isPaused: true })).map(({ nodeId }) => nodeId),
    blocklist: await readBlocklist(reader, orgId, now),
    flowRechecks: org.flowRechecks,
  });
  let parsed: Promise<TestableRules> | undefined;
  return {
    id: orgId,
    slug: org.slug,
    network: org.network,
    network6: org.network6,
    configVersion: org.configVersion,
    config,
    testable: () => (parsed ??= inSlices(testable(rules))),
    trust: trustIn(cas.filter(({ retiredAt }) => retiredAt === null)),
    formerTrust: trustIn(cas),
    orderKey: org.orderPublic,
    orderKeyProof: org.orderKeyProof,
  };
}

function trustIn(cas: readonly Pick<AuthorityRow, "id" | "kind" | "certificate">[]): Trust {
  const of = (kind: AuthorityRow["kind"]) => cas.filter((each) => each.kind === kind);
  return {
    caPem: of("overlay")
      .map(({ certificate }) => certificate)
      .join(""),
    x509Cas: of("x509").map(({ id, certificate }) => ({ id, pem: certificate })),
  };
}

/** Names of the active nodes in rules. Without pending nodes: a rule would grant its rights to any node with the name. */
async function namesIn(reader: Reader, orgId: number, rules: readonly Rule[]): Promise<Map<number, string>> {
  const ids = new Set(rules.flatMap(({ peer }) => ("node" in peer ? [peer.node] : [])));
  const names = new Map<number, string>();
  for (const id of ids) {
    const node = await nodes.find(reader, { orgId, id, state: "active" });
    if (node !== undefined) names.set(id, node.name);
  }
  return names;
}

/**
 * Reads a node and its organization's view as of one moment. After a change between two separate reads, the rendered
 * files could be older than their version number, and the node would never ask for them again.
 */
export async function readTogether(
  reader: Reader,
  views: Views,
  orgId: number,
  nodeId: number,
): Promise<{ view: OrgView; node: NodeRecord }> {
  for (;;) {
    const view = await views.of(reader, orgId);
    const node = await findNode(reader, orgId, nodeId);
    const { configVersion } = await views.of(reader, orgId);
    if (configVersion === view.configVersion) return { view, node };
  }
}

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
  outline: Outline;
  answer(): Promise<DownloadAnswer>;
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

/** All files of one node. Throws node_revoked, and conflict for another node without certificates. */
export async function filesFor(
  { db, renderings }: { db: Reader; renderings: Renderings },
  view: OrgView,
  node: NodeRecord,
  online: boolean,
  inTurn?: WorkInTurn,
): Promise<NodeFiles> {
  const rows = await certificatesOf(db, node);
  const pem = (kind: string) =>
    readable(rows, node)
      .filter((row) => row.kind === kind)
      .map((row) => row.pem)
      .join("");
  const hostCrt = pem("overlay");
  const { caPem, x509Cas } = node.keepsFormer ? view.formerTrust : view.trust;
  const nodeCrt = nodeCrtOf(rows, x509Cas);
  if (hostCrt === "") throw new AppError("conflict", `The node ${node.name} is not registered yet.`);
  const config = await renderings.of(view.config, node, inTurn);
  const nodeConfig = nodeConfigOf(view, node);
  const { config_version: _, ...stable } = nodeConfig;
  const etag = `"${digest([config.digest, caPem, hostCrt, nodeCrt, JSON.stringify(stable), view.orderKeyProof ?? ""])}"`;
  const certificate = currentCertificate(rows);
  const answer = async (): Promise<DownloadAnswer> => ({
    config_version: nodeConfig.config_version,
    etag,
    node: showNode(node, { certificate, orgVersion: view.configVersion, online }),
    order_key: view.orderKey,
    ...(view.orderKeyProof === null ? {} : { order_key_proof: view.orderKeyProof }),
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
    others: outlineOthers({ caPem, x509Cas, rows: readable(rows, node), stable }),
  };
  return { etag, configVersion: nodeConfig.config_version, outline, answer };
}

const lastOf = `SELECT ${filePick.select()} FROM certificates WHERE node_id = $1 AND kind = 'overlay'
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
  return [...(await queryAll(db, filePick, lastOf, [node.id])), ...rows];
}

/** The leaf with its CA as they were signed, then the other CA, which may have signed certificates of peers. */
function nodeCrtOf(rows: readonly FileCertificate[], x509Cas: Trust["x509Cas"]): string {
  const row = rows.find(({ kind }) => kind === "x509");
  if (row === undefined) return "";
  const others = x509Cas.filter(({ id }) => id !== row.authorityId);
  return row.pem + others.map(({ pem }) => pem).join("");
}

/** Without certificate_v2, leave the second certificate out: its renewal must not change the files of this node. */
function readable(rows: readonly FileCertificate[], node: NodeRecord): readonly FileCertificate[] {
  const hasFirst = rows.some(({ kind, version }) => kind === "overlay" && version === 1);
  if (!hasFirst || can(node.overlayVersion, "certificate_v2")) return rows;
  return rows.filter(({ version }) => version === 1);
}

function nodeConfigOf(view: OrgView, node: NodeRecord): NodeConfig {
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

function digest(parts: readonly string[]): string {
  const sum = createHash("sha256");
  for (const part of parts) sum.update(part).update("\0");
  return sum.digest("base64url").slice(0, 27);
}
