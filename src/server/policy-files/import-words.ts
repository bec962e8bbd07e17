// The words of Tailscale's policies: who is meant by a source or destination, and which packets. Pure.

import { parseAddress, parseNetwork } from "../../ip.ts";

/** A side of a rule here, or why there is none. */
export type Side = { side: string } | { reason: string };

export type Names = {
  /** The group here of `tag:web` or `group:web`. */
  groupOf(word: string): string | undefined;
  /** Addresses by name. */
  hosts: ReadonlyMap<string, string>;
};

const reasons: readonly [RegExp, string][] = [
  [/^autogroup:self$/, "self is a destination for users, their groups and * alone"],
  [/^autogroup:internet$/, "exit nodes have no rules of their own here"],
  [/^autogroup:/, "groups by role or kind of device have no equal: put the nodes into a group"],
  [/^(ipset|svc):/, "IP sets and services have no equal"],
  [/@/, "users are not imported: put their nodes into a group, or write user:EMAIL once they are members"],
];

function refused(word: string): string {
  return reasons.find(([pattern]) => pattern.test(word))?.[1] ?? `${word} is not defined`;
}

/** Networks as Tailscale writes them: one address, or a network. */
function networkOf(word: string): string | undefined {
  const address = parseAddress(word);
  if (address !== undefined) return `${word}/${address.family === 4 ? 32 : 128}`;
  return parseNetwork(word)?.text;
}

export function sourceOf(word: string, { groupOf, hosts }: Names): Side {
  if (word === "*") return { side: "any" };
  const group = groupOf(word);
  if (group !== undefined) return { side: `group:${group}` };
  const network = networkOf(hosts.get(word) ?? word);
  return network === undefined ? { reason: refused(word) } : { side: network };
}

export const selfWord = "autogroup:self";

/** The target of a rule whose peer is `self`: these users' own nodes. Nodes with a tag have no user there. */
export function selfTargetOf(word: string, { groupOf }: Names): Side {
  if (word === "*" || word === "autogroup:member") return { side: "any" };
  const group = word.startsWith("group:") ? groupOf(word) : undefined;
  return group === undefined ? { reason: refused(selfWord) } : { side: `group:${group}` };
}

export function targetOf(word: string, { groupOf, hosts }: Names): Side {
  if (word === "*") return { side: "any" };
  const group = groupOf(word);
  if (group !== undefined) return { side: `group:${group}` };
  if (networkOf(hosts.get(word) ?? word) === undefined) return { reason: refused(word) };
  return {
    reason:
      "a destination is a group or a node: packets to a network behind a node pass by the rules of that node",
  };
}

/** `tag:db:5432,8000-8010` as word and ports. */
export function splitPorts(text: string): { word: string; ports: string } {
  const at = text.lastIndexOf(":");
  const word = text.slice(0, at).replace(/^\[(.*)\]$/, "$1");
  return { word, ports: text.slice(at + 1) };
}

/** Ports in the form of this policy, or undefined. */
export function portsOf(text: string): string[] | undefined {
  if (text === "*") return ["any"];
  const ports = text.split(",").map((each) => each.trim());
  const isPort = (each: string) => Number(each) >= 1 && Number(each) <= 65_535;
  const isRange = ports.every((each) => /^\d{1,5}(-\d{1,5})?$/.test(each) && each.split("-").every(isPort));
  return isRange ? ports : undefined;
}

export type Protocol = "any" | "tcp" | "udp" | "icmp";
const protocols = new Map<string, Protocol>([
  ["", "any"],
  ["tcp", "tcp"],
  ["6", "tcp"],
  ["udp", "udp"],
  ["17", "udp"],
  ["icmp", "icmp"],
  ["1", "icmp"],
  ["58", "icmp"],
  ["ipv6-icmp", "icmp"],
]);

export function protocolOf(word: string): Protocol | undefined {
  return protocols.get(word.toLowerCase());
}

export type Packets = { protocol: Protocol; ports: string };

/** Without a protocol, a rule also passes ICMP, which has no ports. */
export function packetsOf(protocol: Protocol, ports: readonly string[]): Packets[] {
  if (protocol === "icmp") return [{ protocol, ports: "any" }];
  const packets = ports.map((each): Packets => ({ protocol, ports: each }));
  const isPartly = protocol === "any" && !ports.includes("any");
  return isPartly ? [...packets, { protocol: "icmp", ports: "any" }] : packets;
}

/** `tcp:443`, `443`, `*`, `icmp:*` of a grant. */
export function grantPackets(text: string): Packets[] | undefined {
  const at = text.indexOf(":");
  const protocol = protocolOf(at === -1 ? "" : text.slice(0, at));
  const ports = portsOf(text.slice(at + 1));
  return protocol === undefined || ports === undefined ? undefined : packetsOf(protocol, ports);
}
