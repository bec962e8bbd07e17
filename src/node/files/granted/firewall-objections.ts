// The part of seal-objections.ts about the firewall: rules that no rule of the seal permits, and flows that stay open too long. Pure.

import { internetNetworks } from "../../../base/ip.ts";
import { isMap, listOf, valueAt, type YamlMap, type YamlValue } from "../../../base/yaml.ts";
import type { SealedNode, SealedRule } from "../../../protocol/seals/seal.ts";
import { networkOfGroup, ownerGroupIn, selfGroup } from "../../../protocol/users-groups.ts";
import { textOf, type AddObjection, type Asked } from "./objection-input.ts";
import { flowTimeWithin } from "./sealed-config.ts";
import { mayRoute } from "./sealed-node.ts";

/** Long times keep flows open that no rule permits any more. */
export function checkFlowTimes({ sealed, config }: Asked, addObjection: AddObjection): void {
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

export function checkFirewall(asked: Asked, addObjection: AddObjection): void {
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
