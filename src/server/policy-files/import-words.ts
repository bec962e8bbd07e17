// Reads single words of Tailscale's policies for import-rules.ts: which side of a rule here a source or destination is, and which
// packets are meant. Pure.

import {
  addressBits,
  makeNetwork,
  maskNetwork,
  networksOverlap,
  parseAddress,
  parseNetworks,
  parseNetwork,
  type Network,
} from "../../base/ip.ts";
import type { Routers } from "./import-routers.ts";

/** A side of a rule here, or the reason why there is none. */
export type Side = { side: string } | { reason: string };

export type Names = {
  /** The group here of `tag:web` or `group:web`. */
  groupOf(word: string): string | undefined;
  /** Addresses by name. */
  hosts: ReadonlyMap<string, string>;
  routers: Routers;
  /** The overlay networks of the organization that the policy is for. Undefined: not known. */
  overlay: readonly Network[] | undefined;
};

const reasons: readonly [pattern: RegExp, reason: string][] = [
  [/^autogroup:self$/, "self is a destination for users, their groups and * alone"],
  [/^autogroup:internet$/, "exit nodes have no rules of their own here"],
  [/^autogroup:/, "groups by role or kind of device have no equal: put the nodes into a group"],
  [/^(ipset|svc):/, "IP sets and services have no equal"],
  [/@/, "users are not imported: put their nodes into a group, or write user:EMAIL once they are members"],
];

/** Why a word that names no group here is refused. */
function reasonFor(word: string): string {
  const known = reasons.find(([pattern]) => pattern.test(word))?.[1];
  if (known !== undefined) return known;
  return maskNetwork(word) === undefined ? `${word} is not defined` : `${word} has bits behind its prefix`;
}

/** Networks as Tailscale writes them: one address, or a network. */
function networkOf(word: string): Network | undefined {
  const address = parseAddress(word);
  return address === undefined ? parseNetwork(word) : makeNetwork(address, addressBits(address.family));
}

/**
 * Networks of the nodes' addresses in Tailscale and headscale. Here nodes have other addresses, even in an overlay of
 * the same network.
 */
const tailscaleNetworks = parseNetworks(["100.64.0.0/10", "fd7a:115c:a1e0::/48"]);

/** A network as a source: packets from machines behind a router. It must not hold addresses of nodes, which it would let in. */
function networkSource(network: Network, overlay: Names["overlay"]): Side {
  const theirs = tailscaleNetworks.find((each) => networksOverlap(each, network));
  if (theirs !== undefined)
    return {
      reason: `${theirs.text} is an address space of Tailscale, and nodes have other addresses here: name a group`,
    };
  if (overlay === undefined)
    return {
      reason:
        "it may overlap the overlay of the organization, and would then be its nodes: import again with --org-slug",
    };
  const own = overlay.find((each) => networksOverlap(each, network));
  if (own === undefined) return { side: network.text };
  return { reason: `it overlaps the overlay ${own.text}, whose nodes are not meant there` };
}

/** The peer of a rule. */
export function sourceOf(word: string, { groupOf, hosts, routers, overlay }: Names): Side {
  if (word === "*") return { side: "any" };
  const group = groupOf(word);
  if (group !== undefined)
    return routers.mayBeRouters(word) ? { reason: routerSourceReason(word) } : { side: `group:${group}` };
  const text = hosts.get(word) ?? word;
  const network = networkOf(text);
  return network === undefined ? { reason: reasonFor(text) } : networkSource(network, overlay);
}

export const selfWord = "autogroup:self";

/** The target of a rule whose peer is `self`: these users' own nodes. Nodes with a tag have no user there. */
export function selfTargetOf(word: string, { groupOf, routers }: Names): Side {
  const isAny = word === "*" || word === "autogroup:member";
  const group = word.startsWith("group:") ? groupOf(word) : undefined;
  if (!isAny && group === undefined) return { reason: reasonFor(selfWord) };
  if (isAny ? routers.mayBeOfUsers : routers.mayBeRouters(word))
    return { reason: routerTargetReason("users") };
  return { side: isAny ? "any" : `group:${group}` };
}

/** The target of a rule. */
export function targetOf(word: string, { groupOf, hosts, routers }: Names): Side {
  if (word === "*") return { side: "any" };
  const group = groupOf(word);
  if (group !== undefined)
    return routers.mayBeRouters(word) ? { reason: routerTargetReason(word) } : { side: `group:${group}` };
  const text = hosts.get(word) ?? word;
  if (networkOf(text) === undefined) return { reason: reasonFor(text) };
  return {
    reason:
      "a destination is a group or a node: packets to a network behind a node pass by the rules of that node",
  };
}

const routerTargetReason = (word: string) =>
  `nodes of ${word} may be routers (autoApprovers, via), and a rule that reaches a router here opens the networks behind it, too`;
const routerSourceReason = (word: string) =>
  `nodes of ${word} may be routers (autoApprovers, via), and a rule for a router here also lets in what the networks behind it send`;

/** `tag:db:5432,8000-8010` as word and ports. */
export function splitPorts(text: string): { word: string; ports: string } {
  const at = text.lastIndexOf(":");
  const word = text.slice(0, at).replace(/^\[(.*)\]$/, "$1");
  return { word, ports: text.slice(at + 1) };
}

const unreadablePorts = "its ports are not *, numbers or ranges";

/** Ports in the form of this policy, or why there are none. */
export function portsOf(text: string): { ports: string[] } | { reason: string } {
  if (text === "*") return { ports: ["any"] };
  const ports: string[] = [];
  for (const part of text.split(",").map((word) => word.trim())) {
    const [, from = "", to = from] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part) ?? [];
    const [first, last] = [Number(from), Number(to)];
    if (from === "" || first > 65_535 || last > 65_535) return { reason: unreadablePorts };
    if (first > last) return { reason: `the range ${part} ends before it begins` };
    // No packet of TCP or UDP has port 0, and the engine reads it as every port.
    if (last === 0) return { reason: "port 0 means every port to the engine" };
    if (first === 0 && last === 65_535) ports.push("any");
    else if (first === last) ports.push(String(first));
    else ports.push(`${Math.max(1, first)}-${last}`);
  }
  return { ports };
}

/**
 * Undefined if absent, which means TCP, UDP and ICMP. It does not become `any`, by which the engine also passes GRE, SCTP and all
 * others.
 */
type Protocol = "tcp" | "udp" | "icmp" | undefined;
const protocols = new Map<string, Protocol>([
  ["", undefined],
  ["tcp", "tcp"],
  ["6", "tcp"],
  ["udp", "udp"],
  ["17", "udp"],
  ["icmp", "icmp"],
  ["1", "icmp"],
  ["58", "icmp"],
  ["ipv6-icmp", "icmp"],
]);

export function protocolOf(word: unknown): { protocol: Protocol } | { reason: string } {
  if (typeof word !== "string" && typeof word !== "number")
    return { reason: "proto is neither a text nor a number" };
  const text = String(word).toLowerCase();
  return protocols.has(text)
    ? { protocol: protocols.get(text) }
    : { reason: `the engine has no rules for the protocol ${word}` };
}

export type Packets = { protocol: "tcp" | "udp" | "icmp"; ports: string };

/**
 * ICMP has no ports: without a protocol, a rule passes it whatever its ports are. Tailscale's filter, too, passes ICMP of either family
 * if a rule permits anything between the two addresses.
 */
export function packetsOf(protocol: Protocol, portText: string): { packets: Packets[] } | { reason: string } {
  const found = portsOf(portText);
  if ("reason" in found) return found;
  const ping: Packets = { protocol: "icmp", ports: "any" };
  if (protocol === "icmp")
    return portText === "*" ? { packets: [ping] } : { reason: "ICMP has no ports: write *" };
  const allPorts = (one: "tcp" | "udp") => found.ports.map((ports): Packets => ({ protocol: one, ports }));
  return {
    packets: protocol === undefined ? [...allPorts("tcp"), ...allPorts("udp"), ping] : allPorts(protocol),
  };
}

/** `tcp:443`, `443`, `*`, `icmp:*` of a grant. */
export function grantPackets(text: string): { packets: Packets[] } | { reason: string } {
  const at = text.indexOf(":");
  if (at === 0) return { reason: "it begins with its protocol, or has none and no colon" };
  const found = protocolOf(at === -1 ? "" : text.slice(0, at));
  return "reason" in found ? found : packetsOf(found.protocol, text.slice(at + 1));
}

/** Keys in lower case, since Tailscale reads them in any case. `repeatedKey`: one that is there in two spellings. */
export type Fields = { fields: Record<string, unknown>; repeatedKey: string | undefined };

export function lowerKeys(entry: Record<string, unknown>): Fields {
  const keys = Object.keys(entry).map((key) => key.toLowerCase());
  return {
    fields: Object.fromEntries(Object.entries(entry).map(([key, value]) => [key.toLowerCase(), value])),
    repeatedKey: keys.find((key, index) => keys.indexOf(key) !== index),
  };
}

/** The first key that is left, and so unknown. Keys with # are comments. */
export const otherKey = (rest: Record<string, unknown>) =>
  Object.keys(rest).find((key) => !key.startsWith("#"));

/** All packets: what a policy without rules permits. */
export const everything: readonly Packets[] = (["tcp", "udp", "icmp"] as const).map((protocol) => ({
  protocol,
  ports: "any",
}));
