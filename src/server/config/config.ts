// Renders a node's config.yml from objects.

import { defaultOverlayPort } from "../../api/values.ts";
import { internetNetworks, joinHostPort, parseAddress } from "../../base/ip.ts";
import { deviceName } from "../../engine/interface-names.ts";
import { listenPlaceIn } from "../../engine/listen-place.ts";
import {
  measureYaml,
  mergeYaml,
  stringifyYaml,
  yamlSlices,
  yamlLimits,
  type YamlMap,
  type YamlValue,
} from "../../base/yaml.ts";
import { changesTo } from "../../protocol/updates/sent-settings.ts";
import { can, parseEngineVersion, type EngineVersion } from "../../engine/features.ts";
import { conntrackDefaults, flowTimes } from "./flow-timeout.ts";
import { withAuthority } from "../certificates/demanded-ca.ts";
import { compileRules } from "../policy/firewall.ts";
import { costOf } from "../../protocol/routing/advertised.ts";
import { isExit, isHub } from "../../protocol/routing/roles.ts";
import { sha256Hex } from "../../base/sha256.ts";
import type { ConfigNode, ConfigView, Hub, NodeKind } from "./config-view.ts";

/** YAML nodes that are kept free for what a node adds to what it is sent: `pki`, and the overrides.yml that it merges itself. */
const reservedNodes = 100;
/** Placeholders in `pki`: the node replaces them with its own paths. */
const pkiPlaceholders = { ca: "ca.crt", cert: "host.crt", key: "host.key" } as const;
/** Nodes accept nine digits. Rechecks add up to a second (withRechecks). */
const longestTimeoutMs = 999_000_000;

/** Defaults of older engines, for nodes with `pinsDefaults`. All others have the defaults of their engine. */
const pinned = {
  handshakes: { try_interval: "100ms", retries: 10, trigger_buffer: 64 },
  routines: 1,
} as const;
const pinnedTun = {
  disabled: false,
  drop_local_broadcast: false,
  drop_multicast: false,
  tx_queue: 500,
  routes: [],
};

export type RenderedConfig = {
  /** The whole file. */
  text: string;
  /** Changes exactly when the text changes. Computed without a pass over the blocklist. */
  digest: string;
  /** The limit that the text exceeds: nodes would refuse it. */
  excess: string | undefined;
};

/** In slices of about a millisecond. */
export function* renderSlices(view: ConfigView, node: NodeKind): Generator<unknown, RenderedConfig> {
  const engine = parseEngineVersion(node.overlayVersion);
  const head = stringifyYaml({ pki: pkiSection(view, engine) });
  const tree = treeOf(view, node, engine);
  yield;
  const parts: string[] = [];
  for (const part of yamlSlices(tree)) {
    parts.push(part);
    yield;
  }
  const tail = `${parts.join("\n")}\n`;
  const text = head + view.blocklistYaml + tail;
  return {
    text,
    excess: excessOf(text, tree, view.blocklist.length),
    digest: sha256Hex(`${head}\n${view.blocklistDigest}\n${tail}`),
  };
}

/** Everything but `pki`. `rollout`: what the settings of an open rollout change, for the nodes that have its order. */
export function treeOf(view: ConfigView, node: NodeKind, engine: EngineVersion): YamlMap {
  const treeWith = (overrides: YamlMap) =>
    withRechecks(withOverrides(sectionsOf(view, node, engine), overrides, node), view.flowRechecks);
  const tree = treeWith(view.overrides);
  const { tried } = view;
  if (tried === undefined || node.tries !== true) return tree;
  const sections = changesTo(tree, treeWith(tried.overrides));
  return { ...tree, rollout: { order: tried.order, sections } };
}

const withOverrides = (
  tree: YamlMap,
  ofAll: YamlMap,
  { configOverrides }: Pick<NodeKind, "configOverrides">,
) => mergeYaml(mergeYaml(tree, ofAll), configOverrides);

/** The limit that the text exceeds. */
function excessOf(text: string, tree: YamlMap, blocked: number): string | undefined {
  const { nodes, depth } = measureYaml(tree);
  const bytes = Buffer.byteLength(text);
  if (bytes > yamlLimits.bytes) return `${bytes} bytes; the maximum is ${yamlLimits.bytes}`;
  if (nodes + blocked + reservedNodes > yamlLimits.nodes)
    return `${nodes + blocked} YAML nodes; the maximum is ${yamlLimits.nodes - reservedNodes}`;
  return depth > yamlLimits.depth ? `${depth} levels; the maximum is ${yamlLimits.depth}` : undefined;
}

type Listening = Pick<
  ConfigNode,
  "listenPort" | "externalPort" | "isLighthouse" | "isRelay" | "publicIp" | "configOverrides"
>;

/** The UDP port that a node's engine is to bind, with the overrides of its organization. */
export function portWithOverrides(node: Listening, ofAll: YamlMap): number {
  const port = listenPortOf(node);
  return listenPlaceIn(withOverrides({ listen: { port } }, ofAll, node)).port ?? port;
}

/** The UDP port that the engine binds: fixed if peers must find the node, else any free port, which suits NAT. */
function listenPortOf(node: Omit<Listening, "configOverrides">): number {
  if (node.listenPort !== null) return node.listenPort;
  const mustBeFound = isHub(node) || node.publicIp !== null;
  return mustBeFound ? (node.externalPort ?? defaultOverlayPort) : 0;
}

const usesVersion2 = (view: ConfigView, engine: EngineVersion): boolean =>
  view.certificateVersion !== 1 && can(engine, "certificate_v2");

export function pkiSection(view: ConfigView, engine: EngineVersion): YamlMap {
  return {
    ...pkiPlaceholders,
    // Without it, engines below 1.8 keep the tunnel of a blocked peer open.
    disconnect_invalid: true,
    // While nodes have both versions, tunnels begin with version 1, which every engine reads.
    ...(usesVersion2(view, engine) ? { initiating_version: view.certificateVersion === 2 ? 2 : 1 } : {}),
  };
}

/** All sections but `pki`, before overrides. */
function sectionsOf(view: ConfigView, node: NodeKind, engine: EngineVersion): YamlMap {
  const others = view.hubs.filter((hub) => hub.id !== node.id);
  const findable = others.filter((hub) => isHub(hub) && hub.publicIp !== null);
  const relays = others.filter((hub) => hub.isRelay && !view.pausedRelays.includes(hub.id));
  const isDualStack = usesBothFamilies(node, findable);
  return {
    static_host_map: Object.fromEntries(findable.map((hub) => [hub.ip, [underlayOf(hub)]])),
    ...(can(engine, "static_map") ? { static_map: { network: isDualStack ? "ip" : "ip4" } } : {}),
    lighthouse: {
      am_lighthouse: node.isLighthouse,
      // Seconds between two messages to the lighthouses about its own addresses.
      interval: 10,
      // The engine does not start if a lighthouse has no static address.
      hosts: node.isLighthouse ? [] : findable.filter((hub) => hub.isLighthouse).map((hub) => hub.ip),
    },
    listen: { host: isDualStack ? "::" : "0.0.0.0", port: listenPortOf(node) },
    punchy: punchySection(engine),
    relay: {
      relays: node.isRelay ? [] : relays.map((hub) => hub.ip),
      am_relay: node.isRelay && !view.pausedRelays.includes(node.id),
      use_relays: true,
    },
    cipher: "aes",
    tun: tunSection(view, node, others, engine),
    firewall: firewallSection(view, node, engine),
    ...(node.pinsDefaults ? pinned : {}),
    // Seconds. Without the feature, an engine that checks tunnels less often would drop revoked peers later.
    timers: { connection_alive_interval: view.aliveInterval ?? (can(engine, "slow_tunnel_checks") ? 2 : 1) },
    logging: { level: "info", format: "json" },
    sshd: { enabled: false },
  };
}

/**
 * The engine's own delay of 5 s would keep a node that asked a lighthouse about itself calling itself for ever: its call ends
 * after 5.5 s, and asks again after 1.5 s.
 */
const punchySection = (engine: EngineVersion): YamlMap => ({
  punch: true,
  respond: true,
  ...(can(engine, "respond_delay") ? { respond_delay: "2s" } : {}),
});

/**
 * Whether the engine needs IPv6 on the underlay: for IPv6 addresses, and for DNS names, which may have AAAA records only.
 * `listen.host` is applied at the start alone, so for nodes with `pinsDefaults` a name changes nothing.
 */
function usesBothFamilies(node: NodeKind, findable: readonly Hub[]): boolean {
  return [node, ...findable].some(({ publicIp }) => {
    if (publicIp === null) return false;
    const family = parseAddress(publicIp)?.family;
    return family === 6 || (family === undefined && (publicIp.includes(":") || !node.pinsDefaults));
  });
}

function tunSection(
  view: ConfigView,
  node: NodeKind,
  others: readonly Hub[],
  engine: EngineVersion,
): YamlMap {
  return {
    ...(node.pinsDefaults ? pinnedTun : {}),
    // macOS names its devices itself.
    ...(node.platform?.startsWith("darwin") === true ? {} : { dev: deviceName(view.slug) }),
    // The default of the engine.
    mtu: 1300,
    unsafe_routes: routesOver(others, node, usesVersion2(view, engine)),
  };
}

/**
 * One entry for each router of a network, the preferred one last: every engine takes the last one, and the node chooses among
 * all of them. A node that routes a network itself gets no entry for it.
 */
function routesOver(others: readonly Hub[], node: NodeKind, hasIpv6: boolean): YamlValue[] {
  const own = new Set(node.subnets);
  const all = others.flatMap(({ ip: via, subnets, routeOptions }) =>
    subnets
      .filter((route) => !own.has(route) && (hasIpv6 || !route.includes(":")))
      .map((route) => ({ route, via, metric: costOf(routeOptions[route]) })),
  );
  const byNetwork = Map.groupBy(all, ({ route }) => route);
  return [...byNetwork.values()].flatMap((routers) => {
    if (routers.length === 1) return routers.map(({ route, via }) => ({ route, via }));
    // The lowest metric is preferred. Of equal ones, the first router is.
    return routers.toReversed().sort((a, b) => b.metric - a.metric);
  });
}

function firewallSection(view: ConfigView, node: NodeKind, engine: EngineVersion): YamlMap {
  const rules = compileRules(view.rules, node, view.nodeNames, engine);
  const withDemanded = (rule: YamlMap) => withAuthority(rule, view.demanded);
  return {
    ...(can(engine, "firewall_actions") ? { inbound_action: "drop", outbound_action: "drop" } : {}),
    conntrack: conntrackDefaults,
    outbound: rules.outbound.flatMap(withDemanded).flatMap((rule) => withSubnets(rule, node, engine)),
    inbound: [
      ...rules.inbound.flatMap(withDemanded).flatMap((rule) => withSubnets(rule, node, engine)),
      ...rulesOfExit(view, node, engine).flatMap(withDemanded),
    ],
  };
}

/**
 * For the groups that may use this node as an exit: the internet, but neither private networks around it nor its own services,
 * except its name server (port 53) and the echo by which they see that it is there.
 */
function rulesOfExit(view: ConfigView, node: NodeKind, engine: EngineVersion): YamlMap[] {
  if (!isExit(node) || !can(engine, "explicit_local_cidr")) return [];
  const hasIpv6 = view.certificateVersion !== 1 && view.networks.some((each) => each.includes(":"));
  const internet = internetNetworks(view.networks).filter((each) => hasIpv6 || !each.includes(":"));
  const icmp = can(engine, "icmp_without_port") ? { proto: "icmp" } : { proto: "icmp", port: "any" };
  return node.exitGroups.flatMap((group) => {
    const peer = group === "any" ? { host: "any" } : { group };
    return [
      { ...icmp, ...peer },
      { proto: "udp", port: "53", ...peer },
      { proto: "tcp", port: "53", ...peer },
      ...internet.map((network) => ({ proto: "any", port: "any", ...peer, local_cidr: network })),
    ];
  });
}

/**
 * An engine checks open flows again, by the certificate that the peer has now, after any change under `firewall`. So each
 * recheck gives another timeout: one that is up to a second longer has no other effect.
 */
function withRechecks(tree: YamlMap, rechecks: number): YamlMap {
  if (rechecks === 0) return tree;
  const ms = Math.min(flowTimes(tree).other, longestTimeoutMs) + (rechecks % 1000);
  return mergeYaml(tree, { firewall: { conntrack: { default_timeout: `${ms}ms` } } });
}

/**
 * A rule, for the engines that otherwise apply it to the node's own addresses alone: also for the networks behind the node.
 * Behind an exit, "any" is the internet too, so each network gets a rule of its own.
 */
function withSubnets(rule: YamlMap, node: NodeKind, engine: EngineVersion): YamlMap[] {
  const isExplicit = can(engine, "explicit_local_cidr");
  const { subnets } = node;
  if (subnets.length === 0 || !isExplicit || "local_cidr" in rule) return [rule];
  if (!isExit(node)) return [{ ...rule, local_cidr: "any" }];
  return [rule, ...subnets.map((network) => ({ ...rule, local_cidr: network }))];
}

/** Where peers find a hub that has a public address. */
function underlayOf(hub: Hub): string {
  const host = hub.publicIp ?? "";
  return joinHostPort(host, hub.externalPort ?? defaultOverlayPort);
}
