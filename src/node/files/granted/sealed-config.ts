// The configuration of this node under a seal that is enforced. Everything by which a control plane could let others in, or lead
// packets elsewhere, is rendered from the seal. The control plane only adds underlay addresses of nodes that the seal names,
// entries of the blocklist, and settings of the machine, about which grants.ts decides. Pure.
// Words: the control plane has the key of the online CA, signers have those of the offline CAs. A sealed node has an identity in the
// seal. A closed node trusts the offline CAs alone, an open one the online CA, too. The sealed network is one of IPv6, whose addresses
// no online CA certifies (sealed-network.ts).

import { internetNetworks } from "../../../base/ip.ts";
import { isMap, listOf, valueAt, type YamlMap, type YamlValue } from "../../../base/yaml.ts";
import { can } from "../../../engine/features.ts";
import type { SealedNode, SealedRule } from "../../../protocol/seals/seal.ts";
import { networkOfGroup, ownerGroupIn, selfGroup } from "../../../protocol/users-groups.ts";
import { addressesOf, addressFor, mayRoute, nodesFor, type SealedSelf } from "./sealed-node.ts";

/**
 * The settings that the seal decides, each with all below it. A test proves that no other setting of the allow-list in
 * engine/allowed-settings.ts opens a way.
 */
export const sealedSettings = [
  "pki.disconnect_invalid",
  "static_host_map",
  "lighthouse.am_lighthouse",
  "lighthouse.hosts",
  "relay.am_relay",
  "relay.relays",
  "tun.unsafe_routes",
  "tun.routes",
  "tun.use_system_route_table",
  "firewall",
] as const;

/** A version; undefined: unknown, and counts as the oldest. */
type Engine = string | undefined;

/** `engine`: the version that the next start runs. An older one reads no certificate with an IPv6 address. */
export function sealedConfig(sent: YamlMap, node: SealedSelf, engine: Engine): YamlMap {
  const self = can(engine, "certificate_v2") ? node : { ...node, address6: undefined };
  const { state, own } = self;
  const hubs = nodesFor(self).filter(({ lighthouse, relay }) => lighthouse || relay);
  const lighthouses = hubs.filter((hub) => hub.lighthouse).flatMap((hub) => addressFor(self, hub) ?? []);
  const relays = hubs.filter((hub) => hub.relay).flatMap((hub) => hubAddresses(self, hub));
  const isLighthouse = own?.lighthouse === true;
  const isRelay = own?.relay === true;
  const section = (name: string): YamlMap => {
    const found = sent[name];
    return isMap(found) ? found : {};
  };
  const { use_system_route_table: _, routes: __, ...tun } = section("tun");
  return {
    ...sent,
    pki: {
      ...section("pki"),
      disconnect_invalid: true,
      blocklist: [...new Set([...listOf(section("pki")["blocklist"]), ...state.sealing.revoked])],
    },
    static_host_map: Object.fromEntries(
      hubs.flatMap((hub) => {
        const underlays = underlaysOf(hub, section("static_host_map"));
        return underlays.length === 0 ? [] : hubAddresses(self, hub).map((overlay) => [overlay, underlays]);
      }),
    ),
    lighthouse: {
      ...section("lighthouse"),
      am_lighthouse: isLighthouse,
      // As in src/server/config/config.ts: lighthouses and relays use no others.
      hosts: isLighthouse ? [] : lighthouses,
    },
    relay: { ...section("relay"), am_relay: isRelay, relays: isRelay ? [] : relays },
    tun: { ...tun, unsafe_routes: routesOf(self, listOf(valueAt(sent, "tun.unsafe_routes")), engine) },
    firewall: firewallOf(self, section("firewall"), engine),
  };
}

/**
 * The overlay addresses of a lighthouse or relay: first the one that this node uses, then the one for nodes outside of the sealed
 * network, which reach this node by the relays that it tells lighthouses. A node that took over that second address could only
 * deny this way: the first one still works.
 */
const hubAddresses = (self: SealedSelf, hub: SealedNode): string[] => [
  ...new Set([addressFor(self, hub), hub.addresses[0]].filter((each) => each !== undefined)),
];

/** Its underlay addresses: the control plane sends them for any of its overlay addresses. */
const underlaysOf = (hub: SealedNode, map: YamlMap): YamlValue[] =>
  addressesOf(hub).flatMap((overlay) => (Object.hasOwn(map, overlay) ? listOf(map[overlay]) : []));

/**
 * The routes to all networks behind nodes of the seal, in the order and with the costs that were sent: the last router of a network
 * is preferred. A router that was not sent comes first. The cost is written only if a network has several routers.
 */
function routesOf(self: SealedSelf, sent: readonly YamlValue[], engine: Engine): YamlValue[] {
  const hasIpv6 =
    can(engine, "certificate_v2") && self.state.networks.some((network) => network.includes(":"));
  const routes = nodesFor(self).flatMap((router) => {
    const via = addressFor(self, router);
    if (via === undefined) return [];
    const reached = router.routes.filter(
      (route) => !mayRoute(self.own, route) && (hasIpv6 || !route.includes(":")),
    );
    return reached.map((route) => ({ route, via, ...placeIn(sent, route, addressesOf(router)) }));
  });
  const byNetwork = Map.groupBy(routes, ({ route }) => route);
  return routes
    .sort((a, b) => a.index - b.index)
    .map(({ route, via, metric }) =>
      (byNetwork.get(route)?.length ?? 0) > 1 ? { route, via, metric } : { route, via },
    );
}

/** Where the sent routes name a router, by one of its addresses, for a network, and with what cost. -1: nowhere. */
function placeIn(
  sent: readonly YamlValue[],
  network: string,
  addresses: readonly string[],
): { index: number; metric: number } {
  const index = sent.findIndex((entry) => {
    const { route, via } = isMap(entry) ? entry : {};
    return route === network && typeof via === "string" && addresses.includes(via);
  });
  const { metric } = isMap(sent[index]) ? sent[index] : {};
  return { index, metric: typeof metric === "number" ? metric : 0 };
}

// Firewall

/** What nodes have without a setting. Longer times would keep flows open that no rule permits any more. */
const flowTimes = { tcp_timeout: "12m", udp_timeout: "3m", default_timeout: "10m" } as const;
const unitMs: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
/** Not a number for another text. */
const msOf = (time: string) => parseInt(time, 10) * (unitMs[time.replace(/^\d+/, "")] ?? Number.NaN);
/** The control plane changes a time by less than a second to have engines check open flows again (src/server/config/config.ts). */
const recheckMs = 1000;

/** The sent time, such as "12m". Undefined: it is no time, or longer than a seal permits. */
export const flowTimeWithin = (
  name: keyof typeof flowTimes,
  sent: YamlValue | undefined,
): string | undefined =>
  typeof sent === "string" && msOf(sent) <= msOf(flowTimes[name]) + recheckMs ? sent : undefined;

function firewallOf(self: SealedSelf, sent: YamlMap, engine: Engine): YamlMap {
  const sentTimes = isMap(sent["conntrack"]) ? sent["conntrack"] : {};
  const time = (name: keyof typeof flowTimes) => flowTimeWithin(name, sentTimes[name]) ?? flowTimes[name];
  const rules = (direction: SealedRule["direction"]) =>
    self.state.rules
      .filter((rule) => rule.direction === direction)
      .flatMap((rule) => ruleOf(rule, self, engine));
  return {
    ...(can(engine, "firewall_actions") ? { inbound_action: "drop", outbound_action: "drop" } : {}),
    conntrack: {
      tcp_timeout: time("tcp_timeout"),
      udp_timeout: time("udp_timeout"),
      default_timeout: time("default_timeout"),
    },
    outbound: rules("outbound"),
    inbound: [...rules("inbound"), ...exitRules(self, engine)],
  };
}

const portOf = (protocol: string, ports: string, engine: Engine): YamlMap =>
  protocol === "icmp" && can(engine, "icmp_without_port")
    ? { proto: protocol }
    : { port: ports, proto: protocol };

/** A rule of the seal in the engine's words. Empty: it is not about this node, or the engine cannot keep it. */
function ruleOf(rule: SealedRule, self: SealedSelf, engine: Engine): YamlMap[] {
  const { target, protocol, ports, peer } = rule;
  const behind = "group" in target ? networkOfGroup(target.group) : undefined;
  if (behind === undefined ? !isAbout(target, self) : !isBehind(behind, self, engine)) return [];
  return peersOf(peer, self, engine).flatMap(({ isSealed, match }) => {
    const rendered = { ...portOf(protocol, ports, engine), ...match };
    if (behind !== undefined) return [{ ...rendered, local_cidr: behind }];
    const { address6, own, isClosed } = self;
    // An open node also has tunnels with nodes of the online CA. One that takes over the IPv4 address of a sealed peer could take
    // over flows to IPv4 addresses of this node, so a rule for a sealed peer admits only this node's sealed address. Networks behind
    // an open router have no such address: flows to them can be taken over. A closed node has no such tunnels.
    if (isSealed && address6 !== undefined && !isClosed)
      return [`${address6}/128`, ...(own?.routes ?? [])].map((local) => ({ ...rendered, local_cidr: local }));
    return withNetworksBehind(rendered, self, engine);
  });
}

function isAbout(target: SealedRule["target"], { name, groups }: SealedSelf): boolean {
  if ("node" in target) return target.node === name;
  return "group" in target ? groups.includes(target.group) : true;
}

/**
 * Whether the network is behind this node, and the engine can limit a rule to it: without `local_cidr` the rule would open the
 * node and all networks behind it.
 */
function isBehind(network: string, { own }: SealedSelf, engine: Engine): boolean {
  const feature = network.includes(":") ? "certificate_v2" : "local_cidr";
  return own?.routes.includes(network) === true && can(engine, feature);
}

/** `match`: the peer in the engine's words. */
type Peer = { isSealed: boolean; match: YamlMap };

/**
 * A sealed node, or a privileged group, must also have a certificate of an offline CA: one rule for each of these CAs.
 */
function peersOf(peer: SealedRule["peer"], { state, groups }: SealedSelf, engine: Engine): Peer[] {
  const { privileged, offline } = state.sealing;
  const plain = (match: YamlMap): Peer[] => [{ match, isSealed: false }];
  const sealed = (match: YamlMap): Peer[] =>
    offline.map((print) => ({ match: { ...match, ca_sha: print }, isSealed: true }));
  if ("any" in peer) return plain({ host: "any" });
  if ("cidr" in peer)
    return peer.cidr.includes(":") && !can(engine, "certificate_v2") ? [] : plain({ cidr: peer.cidr });
  if ("node" in peer) {
    // A node with an identity has a certificate of an offline CA.
    const isSealed = state.nodes.some(({ name, identity }) => name === peer.node && identity !== undefined);
    return (isSealed ? sealed : plain)({ host: peer.node });
  }
  const group = peer.group === selfGroup ? ownerGroupIn(groups) : peer.group;
  if (group === undefined) return [];
  return (privileged.includes(group) ? sealed : plain)({ group });
}

/**
 * Engines from 1.10 on apply a rule to networks behind the node only if it has `local_cidr`. For an exit, "any" would include the
 * internet, so each network is named.
 */
function withNetworksBehind(rule: YamlMap, { own }: SealedSelf, engine: Engine): YamlMap[] {
  if (own === undefined || !can(engine, "explicit_local_cidr")) return [rule];
  if (own.exit.length === 0) return own.routes.length === 0 ? [rule] : [{ ...rule, local_cidr: "any" }];
  return [rule, ...own.routes.map((network) => ({ ...rule, local_cidr: network }))];
}

/** The rules of an exit: echo, names, and the internet, for the groups that may use it. */
function exitRules(self: SealedSelf, engine: Engine): YamlMap[] {
  const { own, state } = self;
  if (own === undefined || own.exit.length === 0 || !can(engine, "explicit_local_cidr")) return [];
  const hasIpv6 = state.networks.some((network) => network.includes(":"));
  const internet = internetNetworks(state.networks).filter((network) => hasIpv6 || !network.includes(":"));
  return own.exit.flatMap((group) =>
    peersOf(group === "any" ? { any: true } : { group }, self, engine).flatMap(({ match: peer }) => [
      { ...portOf("icmp", "any", engine), ...peer },
      { proto: "udp", port: "53", ...peer },
      { proto: "tcp", port: "53", ...peer },
      ...internet.map((network) => ({ proto: "any", port: "any", ...peer, local_cidr: network })),
    ]),
  );
}
