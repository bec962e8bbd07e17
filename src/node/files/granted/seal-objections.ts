// What a seal of the organization objects to in a configuration: everything by which a control plane could let other machines
// in, or lead packets elsewhere (docs/design/sealed.md). Only for reports: sealed-config.ts and sealed-files.ts keep things out.
// Decides by allowing, as grants.ts does: what the seal does not name is an objection. Pure.

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

/** What the control plane sent to this node. `config`: without what the machine does not accept. */
export type SentParts = {
  config: YamlMap;
  caCrt: string;
  hostCrt: string;
  node: Pick<NodeConfig, "name" | "order_key" | "exits">;
};

/** `own`: this node in the seal. `groups`: those of its certificates. */
type Asked = SentParts & { sealed: SealedState; own: SealedNode | undefined; groups: readonly string[] };
type AddObjection = (key: string, reason: string) => void;

/** Objections that are listed: as many as `status` can show. */
const mostObjections = 20;

export function objectionsOf(sealed: SealedState, sent: SentParts): LeftOut[] {
  const own = sealed.nodes.find(({ name }) => name === sent.node.name);
  const groups = [...new Set(decodeBundle(sent.hostCrt).flatMap((certificate) => certificate.groups))];
  const asked: Asked = { ...sent, sealed, own, groups };
  const listed: LeftOut[] = [];
  let more = 0;
  const addObjection: AddObjection = (key, reason) => {
    if (listed.length < mostObjections) listed.push({ key: printable(key), reason });
    else more++;
  };
  checkTrust(asked, addObjection);
  checkCertificate(asked, addObjection);
  checkHubs(asked, addObjection);
  checkRoutes(asked, addObjection);
  checkFirewall(asked, addObjection);
  checkFlowTimes(asked, addObjection);
  checkExits(asked, addObjection);
  return more === 0 ? listed : [...listed, { key: "…", reason: `${more} more` }];
}

/** A port may be a number, and a false control plane may send anything. */
const textOf = (value: YamlValue | undefined): string =>
  typeof value === "string" ? value : (JSON.stringify(value) ?? "");
const printable = (key: string) => key.slice(0, 120).replace(/[^\x20-\x7e]/g, "?");

function checkTrust({ sealed, caCrt, node }: Asked, addObjection: AddObjection): void {
  for (const ca of decodeBundle(caCrt)) {
    const print = fingerprint(ca);
    if (!sealed.authorities.includes(print))
      addObjection(`the CA ${print.slice(0, 16)}`, "the seal has no such CA");
  }
  if (node.order_key !== undefined && node.order_key.x !== sealed.order_key.x)
    addObjection("the order key", "the seal has another one");
}

/**
 * A wider prefix would be a route of the kernel, and a network behind this node opens it to packets for that network. A seal
 * that can be enforced (`sealing`) knows exact addresses and keys; an older one only names networks and routers.
 */
function checkCertificate({ sealed, hostCrt, own }: Asked, addObjection: AddObjection): void {
  const { sealing } = sealed;
  if (sealing !== undefined) {
    const certificates = decodeBundle(hostCrt);
    for (const certificate of certificates) {
      const reason = certificateRefusal({ ...sealed, sealing }, certificate);
      if (reason !== undefined) addObjection(`the certificate of ${certificate.name}`, reason);
    }
    const missing = missingAddress({ ...sealed, sealing }, certificates);
    if (missing !== undefined) addObjection(`the certificate of ${certificates[0]?.name}`, missing);
    return;
  }
  for (const { networks, unsafeNetworks } of decodeBundle(hostCrt)) {
    for (const network of networks)
      if (!sealed.networks.includes(maskNetwork(network) ?? ""))
        addObjection(`the certificate's network ${network}`, "the seal has another network");
    for (const behind of unsafeNetworks)
      if (!mayRoute(own, behind))
        addObjection(`the certificate's network ${behind}`, "the seal has no such router");
  }
}

function checkHubs({ sealed, config, own }: Asked, addObjection: AddObjection): void {
  const addressesWith = (role: "lighthouse" | "relay") =>
    new Set(sealed.nodes.filter((node) => node[role]).flatMap(addressesOf));
  const lighthouses = addressesWith("lighthouse");
  const relays = addressesWith("relay");
  const refuse = (
    section: string,
    values: readonly YamlValue[],
    known: ReadonlySet<string>,
    role: string,
  ) => {
    for (const address of values)
      if (typeof address !== "string" || !known.has(address))
        addObjection(`${section} ${textOf(address)}`, `the seal has no such ${role}`);
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
    addObjection("lighthouse.am_lighthouse", "by the seal this node is no lighthouse");
  if (valueAt(config, "relay.am_relay") === true && own?.relay !== true)
    addObjection("relay.am_relay", "by the seal this node is no relay");
}

function checkRoutes({ sealed, config }: Asked, addObjection: AddObjection): void {
  for (const entry of listOf(valueAt(config, "tun.unsafe_routes"))) {
    const { route, via } = isMap(entry) ? entry : {};
    const network = typeof route === "string" ? route : "";
    // One address, or a list with weights.
    const gateways = Array.isArray(via) ? via.map((way) => (isMap(way) ? way["gateway"] : undefined)) : [via];
    const routers = sealed.nodes.filter((node) => mayRoute(node, network)).flatMap(addressesOf);
    for (const gateway of gateways)
      if (typeof gateway !== "string" || !routers.includes(gateway))
        addObjection(`tun.unsafe_routes ${network} via ${textOf(gateway)}`, "the seal has no such router");
  }
}

function checkExits({ sealed, node }: Asked, addObjection: AddObjection): void {
  for (const exit of node.exits ?? []) {
    if (!isSealedExit(sealed, exit)) addObjection(`the exit ${exit.name}`, "the seal has no such exit");
  }
}

// Firewall

/** Long times keep flows open that no rule permits any more. */
function checkFlowTimes({ sealed, config }: Asked, addObjection: AddObjection): void {
  if (sealed.sealing === undefined) return;
  for (const name of ["tcp_timeout", "udp_timeout", "default_timeout"] as const) {
    const time = valueAt(config, `firewall.conntrack.${name}`);
    if (time !== undefined && flowTimeWithin(name, time) === undefined)
      addObjection(
        `firewall.conntrack.${name} ${textOf(time)}`,
        "a seal permits no longer time than the usual one",
      );
  }
}

function checkFirewall(asked: Asked, addObjection: AddObjection): void {
  for (const direction of ["inbound", "outbound"] as const) {
    const sealedRules = asked.sealed.rules.filter(
      (rule) => rule.direction === direction && isAbout(rule, asked),
    );
    for (const entry of listOf(valueAt(asked.config, `firewall.${direction}`))) {
      const rule = isMap(entry) ? entry : {};
      const isPermitted =
        sealedRules.some((sealedRule) => permits(sealedRule, rule, asked)) ||
        (direction === "inbound" && permitsExit(rule, asked));
      if (!isPermitted)
        addObjection(`firewall.${direction} ${wordsOf(rule)}`, "no rule of the seal permits it");
    }
  }
}

/** Whether a rule of the seal is about this node, or about a network behind it. */
function isAbout({ target }: SealedRule, { own, groups, node }: Asked): boolean {
  if ("node" in target) return target.node === node.name;
  if (!("group" in target)) return true;
  const behind = networkOfGroup(target.group);
  return behind === undefined ? groups.includes(target.group) : own?.routes.includes(behind) === true;
}

/** The settings that name a peer. The engine lets in who matches one of them, so a rule must have only one. */
const peerKeys = ["host", "group", "groups", "cidr"];
const narrowing = ["port", "proto", "local_cidr", "ca_sha", "ca_name"];

/** Whether the rule that was sent is this one of the seal, or narrower by CA, protocol or ports. */
function permits(
  { protocol, ports, peer, target }: SealedRule,
  sentRule: YamlMap,
  { groups, own }: Asked,
): boolean {
  const { proto, port } = sentRule;
  const isPart = protocol === "any" && (proto === "tcp" || proto === "udp" || proto === "icmp");
  if (!isOfKnownKeys(sentRule) || (proto !== protocol && !isPart)) return false;
  // For ICMP the engine ignores the port.
  if (!isWithinPorts(proto === "icmp" ? "any" : textOf(port), ports)) return false;
  const behind = "group" in target ? networkOfGroup(target.group) : undefined;
  return isPeer(peer, sentRule, groups) && isNarrowed(sentRule["local_cidr"], behind, own);
}

/** Both are "any", a port or a range: "80-90". */
function isWithinPorts(sentPorts: string, sealedPorts: string): boolean {
  if (sentPorts === sealedPorts) return true;
  const sent = rangeOf(sentPorts);
  // The engine takes port 0 for any.
  if (sent.from < 1 || sent.from > sent.to || sent.to > 65_535) return false;
  if (sealedPorts === "any") return true;
  const sealed = rangeOf(sealedPorts);
  return sealed.from >= 1 && sealed.from <= sent.from && sent.to <= sealed.to;
}

/** From 0 to 0 for any other text. */
function rangeOf(ports: string): { from: number; to: number } {
  const [, from = "0", to = from] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(ports) ?? [];
  return { from: Number(from), to: Number(to) };
}

const isOfKnownKeys = (rule: YamlMap) =>
  Object.keys(rule).every((key) => peerKeys.includes(key) || narrowing.includes(key)) &&
  peerKeys.filter((key) => rule[key] !== undefined).length === 1;

/** Whether the rule that was sent lets in the peer of the seal's rule. `groups`: of this node. */
function isPeer(peer: SealedRule["peer"], sentRule: YamlMap, groups: readonly string[]): boolean {
  if ("any" in peer) return sentRule["host"] === "any";
  if ("node" in peer) return sentRule["host"] === peer.node;
  if ("cidr" in peer) return sentRule["cidr"] === peer.cidr;
  const group = peer.group === selfGroup ? ownerGroupIn(groups) : peer.group;
  return group !== undefined && sentRule["group"] === group;
}

/**
 * Whether `local_cidr` of the rule that was sent stays within the seal's rule. `behind`: the seal's rule is about this network
 * alone. Other rules may be about the node and each network behind it.
 */
function isNarrowed(
  local: YamlValue | undefined,
  behind: string | undefined,
  own: SealedNode | undefined,
): boolean {
  if (behind !== undefined) return local === behind;
  return local === undefined || local === "any" || (typeof local === "string" && mayRoute(own, local));
}

/** Whether it is a rule of an exit: echo, names, or the internet, for the groups that may use it. */
function permitsExit(rule: YamlMap, { own, sealed }: Asked): boolean {
  if (own === undefined || own.exit.length === 0 || !isOfKnownKeys(rule)) return false;
  const { proto, port, local_cidr: local } = rule;
  const isUser = own.exit.some((group) =>
    group === "any" ? rule["host"] === "any" : rule["group"] === group,
  );
  const isEcho = proto === "icmp";
  const isNames = (proto === "udp" || proto === "tcp") && textOf(port) === "53" && local === undefined;
  const isInternet = typeof local === "string" && internetNetworks(sealed.networks).includes(local);
  return isUser && (isEcho || isNames || isInternet);
}

/** A rule as text: "tcp/443, group web". */
function wordsOf(rule: YamlMap): string {
  const ports = `${textOf(rule["proto"])}/${textOf(rule["port"] ?? "any")}`;
  const others = Object.entries(rule).filter(([key]) => key !== "proto" && key !== "port");
  return [ports, ...others.map(([key, value]) => `${key} ${textOf(value)}`)].join(", ");
}
