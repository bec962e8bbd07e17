// What a node is sent: config.yml, the CA bundle, its certificates, node-config.json. What all nodes of an organization
// share is read once for each config_version and kept; a node costs its own row and its own small part.

import { createHash } from "node:crypto";
import * as v from "valibot";
import { formatTime } from "../../duration.ts";
import { AppError } from "../../errors.ts";
import { atLeast, parseEngineVersion } from "../../engine-features.ts";
import { OrderKey, type DownloadAnswer, type NodeConfig } from "../../protocol.ts";
import { readBlocklist } from "../certificates/blocklist.ts";
import { makeConfigView, type ConfigView, type Hub } from "./config.ts";
import type { Rule } from "../policy/firewall.ts";
import { findNode, showNode, versionOf, type CurrentCertificate, type NodeRecord } from "../store/nodes.ts";
import type { Renderings } from "./renderings.ts";
import { listRules } from "../policy/rules.ts";
import { organizationOf, organizationColumns } from "../policy/organizations.ts";
import {
  numberOf,
  numberOrNull,
  textOf,
  textOrNull,
  textsOf,
  truthOf,
  type Reader,
  type Row,
} from "../store/database.ts";

export type OrgView = {
  id: number;
  slug: string;
  network: string;
  network6: string | null;
  configVersion: number;
  config: ConfigView;
  /** The CAs that nodes trust: two of each kind while a rotation goes on. */
  trust: Trust;
  /** The CAs for nodes from which a rotation has not yet taken the former ones (`NodeRecord.keepsFormer`). */
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
  return {
    async of(reader, orgId) {
      const row = await reader.get("SELECT config_version FROM organizations WHERE id = $1", [orgId]);
      if (row === undefined) throw new AppError("not_found", "There is no such organization.");
      const known = kept.get(orgId);
      if (known?.configVersion === numberOf(row, "config_version")) return known;
      const view = await loadView(reader, orgId, now());
      if (kept.size >= maxKept) kept.clear();
      kept.set(orgId, view);
      return view;
    },
  };
}

async function loadView(reader: Reader, orgId: number, now: number): Promise<OrgView> {
  const row = await reader.get(
    `SELECT ${organizationColumns}, o.config_version AS shared_version, o.order_public, o.order_key_proof FROM organizations o WHERE o.id = $1`,
    [orgId],
  );
  if (row === undefined) throw new AppError("not_found", "There is no such organization.");
  const org = organizationOf(row, null);
  const rules = await listRules(reader, { id: orgId });
  const hubs = await reader.all(
    `SELECT id, ip, is_lighthouse, is_relay, public_ip, external_port, subnets FROM nodes
     WHERE org_id = $1 AND state = 'active' AND (is_lighthouse = 1 OR is_relay = 1 OR subnets <> '[]') ORDER BY id`,
    [orgId],
  );
  const cas = await reader.all(
    // The rotation that retires a CA deletes its key at its end.
    `SELECT id, kind, certificate, retired_at FROM authorities
     WHERE org_id = $1 AND (retired_at IS NULL OR private_key_sealed <> '') AND not_after > $2 ORDER BY id`,
    [orgId, now],
  );
  const config = makeConfigView({
    slug: org.slug,
    aliveInterval: org.alive_interval,
    overrides: v.parse(v.record(v.string(), v.any()), org.config_overrides),
    certificateVersion: org.certificate_version,
    rules,
    nodeNames: await namesIn(reader, orgId, rules),
    hubs: hubs.map(hubOf),
    blocklist: await readBlocklist(reader, orgId, now),
  });
  return {
    id: orgId,
    slug: org.slug,
    network: org.network,
    network6: org.network6,
    configVersion: numberOf(row, "shared_version"),
    config,
    trust: trustIn(cas.filter((each) => each["retired_at"] === null)),
    formerTrust: trustIn(cas),
    orderKey: v.parse(OrderKey, JSON.parse(textOf(row, "order_public"))),
    orderKeyProof: textOrNull(row, "order_key_proof"),
  };
}

function trustIn(cas: readonly Row[]): Trust {
  const of = (kind: string) =>
    cas
      .filter((each) => each["kind"] === kind)
      .map((each) => ({ id: numberOf(each, "id"), pem: textOf(each, "certificate") }));
  return {
    caPem: of("overlay")
      .map(({ pem }) => pem)
      .join(""),
    x509Cas: of("x509"),
  };
}

/**
 * Names of the active nodes that rules speak of. A pending node has no certificate: its name in a rule would grant
 * the rights to whatever gets that name.
 */
async function namesIn(reader: Reader, orgId: number, rules: readonly Rule[]): Promise<Map<number, string>> {
  const ids = new Set(rules.flatMap(({ peer }) => ("node" in peer ? [peer.node] : [])));
  const names = new Map<number, string>();
  for (const id of ids) {
    const row = await reader.get(
      "SELECT name FROM nodes WHERE org_id = $1 AND id = $2 AND state = 'active'",
      [orgId, id],
    );
    if (row !== undefined) names.set(id, textOf(row, "name"));
  }
  return names;
}

function hubOf(row: Row): Hub {
  return {
    id: numberOf(row, "id"),
    ip: textOf(row, "ip"),
    isLighthouse: truthOf(row, "is_lighthouse"),
    isRelay: truthOf(row, "is_relay"),
    publicIp: textOrNull(row, "public_ip"),
    externalPort: numberOrNull(row, "external_port"),
    subnets: textsOf(row, "subnets"),
  };
}

/**
 * A node and what its organization shares, as of one moment. A change between the two reads could leave what is
 * rendered older than the version that it is labelled with, and the node would never ask for it again.
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

/** The files are put together only when they are asked for: most nodes have them already. */
export type NodeFiles = { etag: string; configVersion: number; answer(): DownloadAnswer };

/** Everything for one node. Throws conflict for a node without certificates. */
export async function filesFor(
  { db, renderings }: { db: Reader; renderings: Renderings },
  view: OrgView,
  node: NodeRecord,
  online: boolean,
): Promise<NodeFiles> {
  const rows = await db.all(
    "SELECT kind, authority_id, version, fingerprint, pem, not_before, not_after FROM certificates WHERE node_id = $1 AND state = 'current' ORDER BY kind, version",
    [node.id],
  );
  const pem = (kind: string) =>
    readable(rows, node)
      .filter((row) => row["kind"] === kind)
      .map((row) => textOf(row, "pem"))
      .join("");
  const hostCrt = pem("overlay");
  const { caPem, x509Cas } = node.keepsFormer ? view.formerTrust : view.trust;
  const nodeCrt = nodeCrtOf(rows, x509Cas);
  if (hostCrt === "") throw new AppError("conflict", `The node ${node.name} is not registered yet.`);
  const config = renderings.of(view.config, node);
  const nodeConfig = nodeConfigOf(view, node);
  const { config_version: _, ...stable } = nodeConfig;
  const etag = `"${digest([config.digest, caPem, hostCrt, nodeCrt, JSON.stringify(stable), view.orderKeyProof ?? ""])}"`;
  const certificate = currentCertificate(rows);
  const answer = (): DownloadAnswer => ({
    config_version: nodeConfig.config_version,
    etag,
    node: showNode(node, { certificate, orgVersion: view.configVersion, online }),
    order_key: view.orderKey,
    ...(view.orderKeyProof === null ? {} : { order_key_proof: view.orderKeyProof }),
    files: {
      "config.yml": config.text(),
      "ca.crt": caPem,
      "host.crt": hostCrt,
      ...(nodeCrt === "" ? {} : { "node.crt": nodeCrt }),
      "node-config.json": `${JSON.stringify(nodeConfig, null, 2)}\n`,
    },
  });
  return { etag, configVersion: nodeConfig.config_version, answer };
}

/** The leaf and its CA, as they were signed; then the other CA that peers may have theirs from. */
function nodeCrtOf(rows: readonly Row[], x509Cas: Trust["x509Cas"]): string {
  const row = rows.find((each) => each["kind"] === "x509");
  if (row === undefined) return "";
  const others = x509Cas.filter(({ id }) => id !== numberOf(row, "authority_id"));
  return textOf(row, "pem") + others.map(({ pem }) => pem).join("");
}

/** Engines below 1.10 are sent no second certificate, which they would pass over: one that only they see changed. */
function readable(rows: readonly Row[], node: NodeRecord): readonly Row[] {
  const hasFirst = rows.some((row) => row["kind"] === "overlay" && row["version"] === 1);
  if (!hasFirst || atLeast(parseEngineVersion(node.overlayVersion), 1, 10)) return rows;
  return rows.filter((row) => row["version"] === 1);
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
  };
}

/** The overlay certificate of the highest version among the rows of a node's current certificates. */
export function currentCertificate(rows: readonly Row[]): CurrentCertificate {
  const row = rows.filter((each) => each["kind"] === "overlay").at(-1);
  if (row === undefined) return null;
  return {
    fingerprint: textOf(row, "fingerprint"),
    version: numberOf(row, "version") === 2 ? 2 : 1,
    not_before: formatTime(numberOf(row, "not_before")),
    not_after: formatTime(numberOf(row, "not_after")),
  };
}

function digest(parts: readonly string[]): string {
  const sum = createHash("sha256");
  for (const part of parts) sum.update(part).update("\0");
  return sum.digest("base64url").slice(0, 27);
}
