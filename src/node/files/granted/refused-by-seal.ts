// What the seal of the organization would refuse of a configuration: everything by which a control plane could let other
// machines in, or lead packets elsewhere (docs/design/sealed.md). Pure. Decides by allowing, as grants.ts does.

import { internetNetworks, maskNetwork } from "../../../base/ip.ts";
import { isMap, listOf, valueAt, type YamlMap, type YamlValue } from "../../../base/yaml.ts";
import type { LeftOut } from "../../../engine/left-out.ts";
import { decodeBundle } from "../../../pki/bundle.ts";
import { fingerprint } from "../../../pki/nebula.ts";
import type { NodeConfig } from "../../../protocol/stored.ts";
import type { SealedNode, SealedRule, SealedState } from "../../../protocol/seals/seal.ts";
import { networkOfGroup, ownerGroupIn, selfGroup } from "../../../protocol/users-groups.ts";
import { flowTimeWithin } from "./sealed-config.ts";
import { certificateRefusal, isSealedExit, missingAddress } from "./sealed-files.ts";
import { addressesOf, mayRoute } from "./sealed-node.ts";

/** What the control plane told this node. `config`: without what the machine does not accept. */
export type Told = {
  config: YamlMap;
  caCrt: string;
  hostCrt: string;
  node: Pick<NodeConfig, "name" | "order_key" | "exits">;
};

type Asked = Told & { sealed: SealedState; own: SealedNode | undefined; groups: readonly string[] };
type Tell = (key: string, reason: string) => void;

/** Objections that are listed: as many as `status` can show. */
const mostObjections = 20;

export function objectionsOf(sealed: SealedState, told: Told): LeftOut[] {
  const own = sealed.nodes.find(({ name }) => name === told.node.name);
  const groups = [...new Set(decodeBundle(told.hostCrt).flatMap(({ groups }) => groups))];
  const found: LeftOut[] = [];
  let more = 0;
  const tell: Tell = (key, reason) => {
    if (found.length < mostObjections) found.push({ key: printable(key), reason });
    else more++;
  };
  for (const check of [
    checkTrust,
    checkCertificate,
    checkHubs,
    checkRoutes,
    checkFirewall,
    checkFlowTimes,
    checkExits,
  ])
    check({ ...told, sealed, own, groups }, tell);
  return more === 0 ? found : [...found, { key: "…", reason: `${more} more` }];
}

/** A port may be a number, and a thief may send anything. */
const textOf = (value: YamlValue | undefined): string =>
  typeof value === "string" ? value : (JSON.stringify(value) ?? "");
const printable = (key: string) => key.slice(0, 120).replace(/[^\x20-\x7e]/g, "?");

function checkTrust({ sealed, caCrt, node }: Asked, tell: Tell): void {
  for (const ca of decodeBundle(caCrt)) {
    const print = fingerprint(ca);
    if (!sealed.authorities.includes(print)) tell(`the CA ${print.slice(0, 16)}`, "the seal has no such CA");
  }
  if (node.order_key !== undefined && node.order_key.x !== sealed.order_key.x)
    tell("the order key", "the seal has another one");
}

/** A wider prefix is a route of the kernel; a network behind this node opens it to packets for that network. */
function checkCertificate({ sealed, hostCrt, own }: Asked, tell: Tell): void {
  const { sealing } = sealed;
  if (sealing !== undefined) {
    const all = decodeBundle(hostCrt);
    for (const each of all) {
      const reason = certificateRefusal({ ...sealed, sealing }, each);
      if (reason !== undefined) tell(`the certificate of ${each.name}`, reason);
    }
    const missing = missingAddress({ ...sealed, sealing }, all);
    if (missing !== undefined) tell(`the certificate of ${all[0]?.name}`, missing);
    return;
  }
  for (const { networks, unsafeNetworks } of decodeBundle(hostCrt)) {
    for (const each of networks)
      if (!sealed.networks.includes(maskNetwork(each) ?? ""))
        tell(`the certificate's network ${each}`, "the seal has another network");
    for (const each of unsafeNetworks)
      if (!mayRoute(own, each)) tell(`the certificate's network ${each}`, "the seal has no such router");
  }
}

function checkHubs({ sealed, config, own }: Asked, tell: Tell): void {
  const having = (role: "lighthouse" | "relay") =>
    new Set(sealed.nodes.filter((node) => node[role]).flatMap(addressesOf));
  const [lighthouses, relays] = [having("lighthouse"), having("relay")];
  const refuse = (
    section: string,
    values: readonly YamlValue[],
    known: ReadonlySet<string>,
    role: string,
  ) => {
    for (const each of values)
      if (typeof each !== "string" || !known.has(each))
        tell(`${section} ${textOf(each)}`, `the seal has no such ${role}`);
  };
  const map = config["static_host_map"];
  refuse("lighthouse.hosts", listOf(valueAt(config, "lighthouse.hosts")), lighthouses, "lighthouse");
  refuse("relay.relays", listOf(valueAt(config, "relay.relays")), relays, "relay");
  refuse(
    "static_host_map",
    isMap(map) ? Object.keys(map) : [],
    lighthouses.union(relays),
    "lighthouse or relay",
  );
  if (valueAt(config, "lighthouse.am_lighthouse") === true && own?.lighthouse !== true)
    tell("lighthouse.am_lighthouse", "by the seal this node is no lighthouse");
  if (valueAt(config, "relay.am_relay") === true && own?.relay !== true)
    tell("relay.am_relay", "by the seal this node is no relay");
}

function checkRoutes({ sealed, config }: Asked, tell: Tell): void {
  for (const each of listOf(valueAt(config, "tun.unsafe_routes"))) {
    const { route, via } = isMap(each) ? each : {};
    const network = typeof route === "string" ? route : "";
    const ways = Array.isArray(via) ? via.map((way) => (isMap(way) ? way["gateway"] : undefined)) : [via];
    const routers = sealed.nodes.filter((node) => mayRoute(node, network)).flatMap(addressesOf);
    for (const way of ways)
      if (typeof way !== "string" || !routers.includes(way))
        tell(`tun.unsafe_routes ${network} via ${textOf(way)}`, "the seal has no such router");
  }
}

function checkExits({ sealed, node }: Asked, tell: Tell): void {
  for (const each of node.exits ?? []) {
    if (!isSealedExit(sealed, each)) tell(`the exit ${each.name}`, "the seal has no such exit");
  }
}

// Firewall

/** Long times keep flows open that no rule permits any more. */
function checkFlowTimes({ sealed, config }: Asked, tell: Tell): void {
  if (sealed.sealing === undefined) return;
  for (const name of ["tcp_timeout", "udp_timeout", "default_timeout"] as const) {
    const told = valueAt(config, `firewall.conntrack.${name}`);
    if (told !== undefined && flowTimeWithin(name, told) === undefined)
      tell(`firewall.conntrack.${name} ${textOf(told)}`, "a seal permits no longer time than the usual one");
  }
}

function checkFirewall(asked: Asked, tell: Tell): void {
  for (const direction of ["inbound", "outbound"] as const) {
    const rules = asked.sealed.rules.filter((rule) => rule.direction === direction && isAbout(rule, asked));
    for (const each of listOf(valueAt(asked.config, `firewall.${direction}`))) {
      const told = isMap(each) ? each : {};
      const isPermitted =
        rules.some((rule) => permits(rule, told, asked)) ||
        (direction === "inbound" && permitsExit(told, asked));
      if (!isPermitted) tell(`firewall.${direction} ${wordsOf(told)}`, "no rule of the seal permits it");
    }
  }
}

function isAbout({ target }: SealedRule, { own, groups, node }: Asked): boolean {
  if ("node" in target) return target.node === node.name;
  if (!("group" in target)) return true;
  const behind = networkOfGroup(target.group);
  return behind === undefined ? groups.includes(target.group) : own?.routes.includes(behind) === true;
}

/** The settings that name a peer. The engine takes each of them as another way in. */
const peerKeys = ["host", "group", "groups", "cidr"];
const narrowing = ["port", "proto", "local_cidr", "ca_sha", "ca_name"];

/** Whether the rule that was told is this one of the seal, or narrower by CA, protocol or ports. */
function permits({ protocol, ports, peer, target }: SealedRule, told: YamlMap, asked: Asked): boolean {
  const { proto, port } = told;
  const isPart = protocol === "any" && (proto === "tcp" || proto === "udp" || proto === "icmp");
  if (!isOfKnownKeys(told) || (proto !== protocol && !isPart)) return false;
  // The engine takes every port of ICMP for any.
  if (!isWithin(proto === "icmp" ? "any" : textOf(port), ports)) return false;
  const behind = "group" in target ? networkOfGroup(target.group) : undefined;
  return isPeer(peer, told, asked.groups) && isNarrowed(told["local_cidr"], behind, asked.own);
}

function isWithin(told: string, sealed: string): boolean {
  if (told === sealed) return true;
  const [inner, outer] = [told, sealed].map((text) => (/^\d{1,5}(-\d{1,5})?$/.test(text) ? text : ""));
  const [from = 0, to = from] = (inner ?? "").split("-").map(Number);
  // The engine takes port 0 for any.
  if (from < 1 || from > to || to > 65_535) return false;
  const [first = 0, last = first] = (outer ?? "").split("-").map(Number);
  return sealed === "any" || (first >= 1 && first <= from && to <= last);
}

const isOfKnownKeys = (told: YamlMap) =>
  Object.keys(told).every((key) => peerKeys.includes(key) || narrowing.includes(key)) &&
  peerKeys.filter((key) => told[key] !== undefined).length === 1;

function isPeer(peer: SealedRule["peer"], told: YamlMap, groups: readonly string[]): boolean {
  if ("any" in peer) return told["host"] === "any";
  if ("node" in peer) return told["host"] === peer.node;
  if ("cidr" in peer) return told["cidr"] === peer.cidr;
  const group = peer.group === selfGroup ? ownerGroupIn(groups) : peer.group;
  return group !== undefined && told["group"] === group;
}

/** `behind`: the rule is about this network alone. Other rules may be about the node and each network behind it. */
function isNarrowed(
  local: YamlValue | undefined,
  behind: string | undefined,
  own: SealedNode | undefined,
): boolean {
  if (behind !== undefined) return local === behind;
  return local === undefined || local === "any" || (typeof local === "string" && mayRoute(own, local));
}

/** Whether it is a rule of an exit: echo, names, or the internet, for the groups that may use it. */
function permitsExit(told: YamlMap, { own, sealed }: Asked): boolean {
  if (own === undefined || own.exit.length === 0 || !isOfKnownKeys(told)) return false;
  const { proto, port, local_cidr: local } = told;
  const isUser = own.exit.some((group) =>
    group === "any" ? told["host"] === "any" : told["group"] === group,
  );
  const isEcho = proto === "icmp";
  const isNames = (proto === "udp" || proto === "tcp") && textOf(port) === "53" && local === undefined;
  const isInternet = typeof local === "string" && internetNetworks(sealed.networks).includes(local);
  return isUser && (isEcho || isNames || isInternet);
}

function wordsOf(told: YamlMap): string {
  const [proto, port] = [told["proto"], told["port"] ?? "any"].map(textOf);
  const from = Object.entries(told).filter(([key]) => key !== "proto" && key !== "port");
  return [`${proto}/${port}`, ...from.map(([key, value]) => `${key} ${textOf(value)}`)].join(", ");
}
