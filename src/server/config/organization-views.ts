// The part of the nodes' files that all nodes of an organization share. Read once per config_version and cached.
//
// Each change of what a view holds must raise the config_version of the organization in the same transaction: else nodes get
// the former view. What ends with time alone (CAs, entries of the blocklist) stays in a view until the next change.

import { mostTcpWays } from "../../protocol/organization-files.ts";
import { sealHash } from "../../pki/seal.ts";
import { sealTag, type SignedSeal } from "../../protocol/seals/seal.ts";
import type { OrderKey } from "../../protocol/values.ts";
import { readBlocklist } from "../certificates/blocklist.ts";
import { inSlices } from "../http/heavy-work.ts";
import { demandedIn } from "../certificates/demanded-ca.ts";
import { makeConfigView, type ConfigView } from "./config-view.ts";
import { testable, type TestableRules } from "../policy/firewall.ts";
import type { Rule } from "../../api/rules.ts";
import { findWithVersion, type NodeRecord } from "../store/nodes.ts";
import { listRules } from "../policy/stored-rules.ts";
import type { Reader } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { authorities, type AuthorityRow } from "../store/tables/certificates.ts";
import { hubIs, nodes, specialIs } from "../store/tables/nodes.ts";
import { requireOrganization } from "../store/tables/organizations.ts";
import { readSeals } from "../store/tables/policies.ts";
import { orderOf, rollouts } from "../store/tables/rollouts.ts";
import { relayTraffic } from "../store/tables/paths.ts";
import { readConfigVersion } from "../store/versions.ts";

export type OrgView = {
  id: number;
  slug: string;
  network: string;
  network6: string | null;
  configVersion: number;
  /** Nodes report which flows there are. */
  flows: boolean;
  /** Nodes behind a router ask it for a UDP port. */
  portMapping: boolean;
  config: ConfigView;
  /** The nodes that are exits to the internet. */
  exits: readonly ReturnType<typeof exitPick.parse>[];
  /** Lighthouses and relays that are reached by TCP. Not in `config`: no config.yml changes with them. */
  byTcp: readonly ReturnType<typeof tcpPick.parse>[];
  /** For tests of the rules. Made at the first one. */
  testable(): Promise<TestableRules>;
  /** The CAs that nodes trust: two of each kind during a rotation. */
  trust: Trust;
  /** The CAs that nodes trust while the rotation lets them keep the former ones (`NodeRow.keepsFormer`). */
  formerTrust: Trust;
  orderKey: OrderKey;
  orderKeyProof: string | null;
  seals: readonly SignedSeal[];
  /** The tag of each seal. Computed here, because every download needs them and a seal has up to 256 KB. */
  sealTags: readonly string[];
};

/** The bundle that engines read, and the X.509 CAs for services on the nodes. */
export type Trust = { caPem: string; x509Cas: readonly { id: number; pem: string }[] };

export type Views = {
  of(reader: Reader, orgId: number): Promise<OrgView>;
  /** The one that was read last, perhaps of an earlier version. */
  last(orgId: number): OrgView | undefined;
};

/** Organizations whose views are kept. */
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
    last: (orgId) => kept.get(orgId),
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

const hubPick = nodes.pick(
  "id",
  "ip",
  "isLighthouse",
  "isRelay",
  "publicIp",
  "externalPort",
  "subnets",
  "routeOptions",
);
const tcpPick = nodes.pick(
  "id",
  "ip",
  "isLighthouse",
  "isRelay",
  "publicIp",
  "externalPort",
  "listenPort",
  "configOverrides",
  "tcp",
);
const exitPick = nodes.pick("id", "name", "ip", "ip6", "exitGroups");
const caPick = authorities.pick("id", "kind", "certificate", "retiredAt");

// $1: the organization.
const hubsSql = `SELECT ${hubPick.select()} FROM nodes WHERE org_id = $1 AND state = 'active' AND (${specialIs()}) ORDER BY id`;
const exitsSql = `SELECT ${exitPick.select()} FROM nodes WHERE org_id = $1 AND state = 'active' AND exit_groups <> '[]' ORDER BY id`;
const byTcpSql = `SELECT ${tcpPick.select()} FROM nodes WHERE org_id = $1 AND state = 'active' AND tcp IS NOT NULL
  AND (${hubIs()}) AND public_ip IS NOT NULL ORDER BY id LIMIT ${mostTcpWays}`;
/** $2: now, ms. The rotation that retires a CA deletes its key at the end. */
const casSql = `SELECT ${caPick.select()} FROM authorities
  WHERE org_id = $1 AND (retired_at IS NULL OR private_key_sealed <> '') AND not_after > $2 ORDER BY id`;

async function loadView(reader: Reader, orgId: number, now: number): Promise<OrgView> {
  const org = await requireOrganization(reader, { id: orgId });
  const rules = await listRules(reader, { id: orgId });
  const hubs = await queryAll(reader, hubPick, hubsSql, [orgId]);
  const exits = await queryAll(reader, exitPick, exitsSql, [orgId]);
  const byTcp = await queryAll(reader, tcpPick, byTcpSql, [orgId]);
  const cas = await queryAll(reader, caPick, casSql, [orgId, now]);
  const [seals, nodeNames, paused, blocklist, rollout] = await Promise.all([
    readSeals(reader, orgId),
    namesIn(reader, orgId, rules),
    relayTraffic.all(reader, { orgId, isPaused: true }),
    readBlocklist(reader, orgId, now),
    rollouts.find(reader, { orgId, endedAt: null }),
  ]);
  const settings = rollout?.settings ?? null;
  const config = makeConfigView({
    slug: org.slug,
    networks: [org.network, ...(org.network6 === null ? [] : [org.network6])],
    aliveInterval: org.aliveInterval,
    overrides: org.configOverrides,
    // The overrides that a rollout tries, for the nodes that have its order.
    ...(rollout === undefined || settings === null
      ? {}
      : { tried: { order: orderOf(rollout), overrides: settings } }),
    certificateVersion: org.certificateVersion,
    rules,
    nodeNames,
    hubs,
    pausedRelays: paused.map(({ nodeId }) => nodeId),
    blocklist,
    flowRechecks: org.flowRechecks,
    demanded: demandedIn(seals),
  });
  let parsed: Promise<TestableRules> | undefined;
  return {
    id: orgId,
    slug: org.slug,
    network: org.network,
    network6: org.network6,
    configVersion: org.configVersion,
    flows: org.flows,
    portMapping: org.portMapping,
    config,
    exits,
    byTcp,
    testable: () => (parsed ??= inSlices(testable(rules))),
    trust: trustIn(cas.filter(({ retiredAt }) => retiredAt === null)),
    formerTrust: trustIn(cas),
    orderKey: org.orderPublic,
    orderKeyProof: org.orderKeyProof,
    seals,
    sealTags: seals.map(({ text }) => sealTag(sealHash(text))),
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
  for (let view = views.last(orgId); ; view = await views.of(reader, orgId)) {
    const { node, configVersion } = await findWithVersion(reader, orgId, nodeId);
    if (view?.configVersion === configVersion) return { view, node };
  }
}
