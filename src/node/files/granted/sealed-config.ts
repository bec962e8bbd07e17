// The configuration of this node under a seal that is enforced: all by which a control plane could let others in, or lead
// packets elsewhere, is rendered from the seal. Of what was sent stay underlay addresses of nodes that the seal names,
// additions to the blocklist, and settings of the machine, about which grants.ts decides. Pure.

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

type Engine = string | undefined;

/** `engine`: the version that the next start runs. An older one reads no certificate with an IPv6 address. */
export function sealedConfig(sent: YamlMap, asked: SealedSelf, engine: Engine): YamlMap {
  const self = can(engine, "certificate_v2") ? asked : { ...asked, address6: undefined };
  const { state, own } = self;
  const hubs = nodesFor(self).filter(({ lighthouse, relay }) => lighthouse || relay);
  const lighthouses = hubs.filter((each) => each.lighthouse).flatMap((each) => addressFor(self, each) ?? []);
  const relays = hubs.filter((each) => each.relay).flatMap((each) => hubAddresses(self, each));
  const [isLighthouse, isRelay] = [own?.lighthouse === true, own?.relay === true];
  const section = (name: string): YamlMap => {
    const present = sent[name];
    return isMap(present) ? present : {};
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
        const at = underlaysOf(hub, section("static_host_map"));
        return at.length === 0 ? [] : hubAddresses(self, hub).map((key) => [key, at]);
      }),
    ),
    lighthouse: {
      ...section("lighthouse"),
      am_lighthouse: isLighthouse,
      hosts: isLighthouse ? [] : lighthouses,
    },
    relay: { ...section("relay"), am_relay: isRelay, relays: isRelay ? [] : relays },
    tun: { ...tun, unsafe_routes: routesOf(self, listOf(valueAt(sent, "tun.unsafe_routes")), engine) },
    firewall: firewallOf(self, section("firewall"), engine),
  };
}

/**
 * Its address for this node first, then the one for nodes outside of the sealed network: they find this node by the relays that
 * it tells lighthouses. Whoever takes that one relays nothing: he denies that way, and the other one stays.
 */
const hubAddresses = (self: SealedSelf, hub: SealedNode): string[] => [
  ...new Set([addressFor(self, hub), hub.addresses[0]].filter((each) => each !== undefined)),
];

/** The control plane may tell them by any address of the node that the seal has. */
const underlaysOf = (hub: SealedNode, map: YamlMap): YamlValue[] =>
  addressesOf(hub).flatMap((each) => (Object.hasOwn(map, each) ? listOf(map[each]) : []));

/**
 * All routers of a network, in the order and with the costs that were sent: the last one is preferred. A router that was not
 * sent comes first.
 */
function routesOf(self: SealedSelf, sent: readonly YamlValue[], engine: Engine): YamlValue[] {
  const hasIpv6 = can(engine, "certificate_v2") && self.state.networks.some((each) => each.includes(":"));
  const wanted = nodesFor(self).flatMap((router) =>
    router.routes
      .filter((route) => !mayRoute(self.own, route) && (hasIpv6 || !route.includes(":")))
      .flatMap((route) => {
        const via = addressFor(self, router);
        return via === undefined ? [] : [{ route, via, also: addressesOf(router) }];
      }),
  );
  const placed = wanted.map(({ route, via, also }) => {
    const at = sent.findIndex(
      (each) =>
        isMap(each) &&
        each["route"] === route &&
        typeof each["via"] === "string" &&
        also.includes(each["via"]),
    );
    const told = sent[at];
    const metric = isMap(told) && typeof told["metric"] === "number" ? told["metric"] : undefined;
    return { at, route, via, metric };
  });
  const counts = Map.groupBy(placed, ({ route }) => route);
  return placed
    .sort((a, b) => a.at - b.at)
    .map(({ route, via, metric = 0 }) =>
      (counts.get(route)?.length ?? 0) > 1 ? { route, via, metric } : { route, via },
    );
}

// Firewall

/** What nodes have without a setting. Longer times would keep flows open that no rule permits any more. */
const flowTimes = { tcp_timeout: "12m", udp_timeout: "3m", default_timeout: "10m" } as const;
const unitMs: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const msOf = (time: string) => parseInt(time, 10) * (unitMs[time.replace(/^\d+/, "")] ?? Number.NaN);
/** A change of the time by less than a second has engines check open flows again (src/server/config/config.ts). */
const recheckMs = 1000;

/** Undefined: the time is none, or longer than a seal lets it be. */
export const flowTimeWithin = (
  name: keyof typeof flowTimes,
  told: YamlValue | undefined,
): string | undefined =>
  typeof told === "string" && msOf(told) <= msOf(flowTimes[name]) + recheckMs ? told : undefined;

function firewallOf(self: SealedSelf, sent: YamlMap, engine: Engine): YamlMap {
  const told = isMap(sent["conntrack"]) ? sent["conntrack"] : {};
  const time = (name: keyof typeof flowTimes) => flowTimeWithin(name, told[name]) ?? flowTimes[name];
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

function ruleOf(rule: SealedRule, self: SealedSelf, engine: Engine): YamlMap[] {
  const { target, protocol, ports, peer } = rule;
  const behind = "group" in target ? networkOfGroup(target.group) : undefined;
  if (behind === undefined ? !isAbout(target, self) : !isBehind(behind, self, engine)) return [];
  return peersOf(peer, self, engine).flatMap(({ isSealed, match }) => {
    const rendered = { ...portOf(protocol, ports, engine), ...match };
    if (behind !== undefined) return [{ ...rendered, local_cidr: behind }];
    const { address6, own, isClosed } = self;
    // An open node has tunnels with whoever takes the IPv4 address of a sealed peer: he takes over flows to IPv4 addresses of this
    // node. Also those to networks behind an open router, for which the engine has no other address. A closed node has no tunnel
    // with him, and serves peers without a sealed address, too.
    if (isSealed && address6 !== undefined && !isClosed)
      return [`${address6}/128`, ...(own?.routes ?? [])].map((local) => ({ ...rendered, local_cidr: local }));
    return withNetworksBehind(rendered, self, engine);
  });
}

function isAbout(target: SealedRule["target"], { name, groups }: SealedSelf): boolean {
  if ("node" in target) return target.node === name;
  return "group" in target ? groups.includes(target.group) : true;
}

/** An engine that knows no `local_cidr` would open the node, and all networks behind it. */
function isBehind(network: string, { own }: SealedSelf, engine: Engine): boolean {
  const feature = network.includes(":") ? "certificate_v2" : "local_cidr";
  return own?.routes.includes(network) === true && can(engine, feature);
}

type Peer = { isSealed: boolean; match: YamlMap };

/** The peer in the engine's words. What privileged nodes alone may do demands the offline CA beside their name or group. */
function peersOf(peer: SealedRule["peer"], { state, groups }: SealedSelf, engine: Engine): Peer[] {
  const { privileged, offline } = state.sealing;
  const plain = (match: YamlMap): Peer[] => [{ match, isSealed: false }];
  const sealed = (match: YamlMap): Peer[] =>
    offline.map((print) => ({ match: { ...match, ca_sha: print }, isSealed: true }));
  if ("any" in peer) return plain({ host: "any" });
  if ("cidr" in peer)
    return peer.cidr.includes(":") && !can(engine, "certificate_v2") ? [] : plain({ cidr: peer.cidr });
  if ("node" in peer) {
    const isSealed = state.nodes.some(({ name, identity }) => name === peer.node && identity !== undefined);
    return (isSealed ? sealed : plain)({ host: peer.node });
  }
  const group = peer.group === selfGroup ? ownerGroupIn(groups) : peer.group;
  if (group === undefined) return [];
  return (privileged.includes(group) ? sealed : plain)({ group });
}

/** From 1.10 on, a rule is about the networks behind the node only if it says so. Behind an exit, "any" is the internet too. */
function withNetworksBehind(rule: YamlMap, { own }: SealedSelf, engine: Engine): YamlMap[] {
  if (own === undefined || !can(engine, "explicit_local_cidr")) return [rule];
  if (own.exit.length === 0) return own.routes.length === 0 ? [rule] : [{ ...rule, local_cidr: "any" }];
  return [rule, ...own.routes.map((network) => ({ ...rule, local_cidr: network }))];
}

/** The rules of an exit: echo, names, and the internet, for the groups that may use it. */
function exitRules(self: SealedSelf, engine: Engine): YamlMap[] {
  const { own, state } = self;
  if (own === undefined || own.exit.length === 0 || !can(engine, "explicit_local_cidr")) return [];
  const hasIpv6 = state.networks.some((each) => each.includes(":"));
  const internet = internetNetworks(state.networks).filter((each) => hasIpv6 || !each.includes(":"));
  return own.exit.flatMap((group) =>
    peersOf(group === "any" ? { any: true } : { group }, self, engine).flatMap(({ match: peer }) => [
      { ...portOf("icmp", "any", engine), ...peer },
      { proto: "udp", port: "53", ...peer },
      { proto: "tcp", port: "53", ...peer },
      ...internet.map((network) => ({ proto: "any", port: "any", ...peer, local_cidr: network })),
    ]),
  );
}
