// Firewall rules of an organization: their translation into the engine's rules for one node, and the test
// "may A reach B". Pure. Rules only permit: the engine drops what no rule permits.

import { isSelf, portRange, type Explained, type Peer, type Rule, type Target } from "../../api/rules.ts";
import { parseAddress, parseNetwork, networkContains } from "../../base/ip.ts";
import { networkOfGroup, ownerGroupIn } from "../../protocol/users-groups.ts";
import { can, type EngineVersion } from "../../engine/features.ts";

export const reservedSentence = (name: string) =>
  `A new group cannot be named ${name}: the prefixes user:, idp: and autogroup: are reserved.`;

/** The two initial rules of every organization. They are ordinary rules and can be deleted. */
export const firstRules: readonly Omit<Rule, "id">[] = [
  {
    direction: "inbound",
    protocol: "icmp",
    ports: "any",
    peer: { any: true },
    target: { any: true },
    description: "Everybody may ping",
  },
  {
    direction: "outbound",
    protocol: "any",
    ports: "any",
    peer: { any: true },
    target: { any: true },
    description: "Everything may go out",
  },
];

/** The columns of a node that rules match. */
export type Member = {
  id: number;
  name: string;
  ip: string;
  ip6: string | null;
  groups: readonly string[];
  /**
   * Set for a network behind the node, in place of the node itself: `ip` is the network, and rules about the node hold for it.
   * Two states of the policy are compared with the same members (node-classes.ts). `isThere` false: in this state the node does not
   * route the network, so no rule is about it.
   */
  behind?: { isThere: boolean };
};

/** The node whose engine gets a rule: what targets match of it. */
type Self = Pick<Member, "id" | "groups"> & { subnets?: readonly string[] };

type EngineRule = Record<string, string>;
export type EngineRules = { inbound: EngineRule[]; outbound: EngineRule[] };

/**
 * Translates rules into the engine's rules for one node. Each has exactly one of host, group and cidr: the engine treats
 * several as alternatives, so a second one would widen the rule. A peer node is matched by the name in its certificate;
 * a rule about a deleted node permits nothing.
 */
export function compileRules(
  rules: readonly Rule[],
  self: Self,
  nodeNames: ReadonlyMap<number, string>,
  engine: EngineVersion,
): EngineRules {
  const compiled: EngineRules = { inbound: [], outbound: [] };
  for (const rule of rules) {
    // The target `network:…`, a network behind nodes, is stored in the form of a group.
    const network = "group" in rule.target ? networkOfGroup(rule.target.group) : undefined;
    const concernsSelf =
      network === undefined ? applies(rule.target, self) : canNarrow(network, self, engine);
    if (!concernsSelf) continue;
    const peer = enginePeer(peerOf(rule.peer, self), nodeNames, engine);
    if (peer === undefined) continue;
    const portless = rule.protocol === "icmp" && can(engine, "icmp_without_port");
    compiled[rule.direction].push({
      ...(portless ? {} : { port: rule.ports }),
      proto: rule.protocol,
      ...peer,
      ...(network === undefined ? {} : { local_cidr: network }),
    });
  }
  return compiled;
}

/**
 * Whether the node can get a rule for this network behind it alone. An engine that knows no `local_cidr` would open the node, and
 * all networks behind it.
 */
function canNarrow(network: string, { subnets = [] }: Self, engine: EngineVersion): boolean {
  const isKnown = can(engine, network.includes(":") ? "certificate_v2" : "local_cidr");
  return subnets.includes(network) && isKnown;
}

export function applies(target: Target, self: Self): boolean {
  if ("node" in target) return target.node === self.id;
  if ("group" in target) return self.groups.includes(target.group);
  return true;
}

/** The group of the owner, for `self`. Undefined for a node without an owner: `self` then matches nothing. */
function peerOf(peer: Peer, { groups }: Pick<Member, "groups">): Peer | undefined {
  if (!isSelf(peer)) return peer;
  const group = ownerGroupIn(groups);
  return group === undefined ? undefined : { group };
}

function enginePeer(
  peer: Peer | undefined,
  nodeNames: ReadonlyMap<number, string>,
  engine: EngineVersion,
): Record<string, string> | undefined {
  if (peer === undefined) return undefined;
  if ("any" in peer) return { host: "any" };
  if ("group" in peer) return { group: peer.group };
  if ("cidr" in peer) {
    // An engine without IPv6 in the overlay refuses a configuration with such a network.
    return peer.cidr.includes(":") && !can(engine, "certificate_v2") ? undefined : { cidr: peer.cidr };
  }
  const name = nodeNames.get(peer.node);
  return name === undefined ? undefined : { host: name };
}

export type Verdict = Omit<Explained, "permitted">;
type Packet = { protocol: "tcp" | "udp" | "icmp"; port?: number | undefined };
type Network = NonNullable<ReturnType<typeof parseNetwork>>;

/** A rule with its texts parsed, once for all tests. Undefined: ports that cannot be read, and peers that are no network. */
export type Parsed = Pick<Rule, "id" | "protocol" | "peer" | "target"> & {
  ports: "any" | readonly [number, number] | undefined;
  network: Network | undefined;
};
export type TestableRules = Record<Rule["direction"], readonly Parsed[]>;

/** The input of `decide`. An organization's rules are parsed once for each of their states, in slices. */
export function* testable(rules: readonly Rule[]): Generator<unknown, TestableRules> {
  const parsed: Record<Rule["direction"], Parsed[]> = { inbound: [], outbound: [] };
  for (const { id, direction, protocol, ports, peer, target } of rules) {
    const network = "cidr" in peer ? parseNetwork(peer.cidr) : undefined;
    parsed[direction].push({ id, protocol, peer, target, ports: portRange(ports), network });
    if ((parsed.inbound.length + parsed.outbound.length) % 50 === 0) yield;
  }
  return parsed;
}

/**
 * Decides whether `from` may open a connection to `to`. The sender's outbound rules and the receiver's inbound rules must
 * both permit it; replies need no rule. `rule_id` is the inbound rule that permits it, or null.
 */
export function decide(rules: TestableRules, from: Member, to: Member, packet: Packet): Verdict {
  const what = packet.protocol === "icmp" ? "icmp" : `${packet.protocol}/${packet.port ?? "any"}`;
  const out = firstThatPermits(rules.outbound, from, to, packet);
  if (out === undefined) {
    return {
      allowed: false,
      rule_id: null,
      outbound_rule_id: null,
      reason: `No outbound rule of ${from.name} permits ${what} to ${to.name}.`,
    };
  }
  const into = firstThatPermits(rules.inbound, to, from, packet);
  if (into === undefined) {
    return {
      allowed: false,
      rule_id: null,
      outbound_rule_id: out.id,
      reason: `No inbound rule of ${to.name} permits ${what} from ${from.name}.`,
    };
  }
  return {
    allowed: true,
    rule_id: into.id,
    outbound_rule_id: out.id,
    reason: `Rule ${out.id} permits ${what} out of ${from.name}, rule ${into.id} permits it into ${to.name}.`,
  };
}

function firstThatPermits(
  rules: readonly Parsed[],
  self: Member,
  peer: Member,
  packet: Packet,
): Parsed | undefined {
  const isAbout = between(self, peer);
  return rules.find(
    (rule) =>
      (rule.protocol === "any" || rule.protocol === packet.protocol) &&
      coversPort(rule.ports, packet) &&
      isAbout(rule),
  );
}

/** Whether a rule of `self` is about its traffic with `peer`. */
export function between(self: Member, peer: Member): (rule: Parsed) => boolean {
  const addresses = [peer.ip, peer.ip6].flatMap((text) => {
    const address = text === null ? undefined : parseAddress(text);
    return address === undefined ? [] : [address];
  });
  return (rule) => applies(rule.target, self) && isPeer(rule, self, peer, addresses);
}

function coversPort(range: Parsed["ports"], packet: Packet): boolean {
  if (range === undefined) return false;
  if (range === "any") return true;
  // For the engine an ICMP packet has no port, so a rule with ports never covers it.
  if (packet.protocol === "icmp" || packet.port === undefined) return false;
  return packet.port >= range[0] && packet.port <= range[1];
}

type Address = NonNullable<ReturnType<typeof parseAddress>>;

/** Whether the rule of `self` names `peer`. `addresses`: those of `peer`. */
function isPeer(
  rule: Parsed,
  self: Pick<Member, "groups">,
  peer: Member,
  addresses: readonly Address[],
): boolean {
  const { network } = rule;
  const named = peerOf(rule.peer, self);
  if (named === undefined) return false;
  if ("any" in named) return true;
  if ("group" in named) return peer.groups.includes(named.group);
  if ("node" in named) return named.node === peer.id;
  return network !== undefined && addresses.some((address) => networkContains(network, address));
}

/**
 * Whether the rule has this node as its target, or as its peer with these addresses. The peer `self` is every node with an owner:
 * whether the target has the same one is not asked.
 */
export function permits(
  rule: Parsed,
  side: "target" | "peer",
  member: Member,
  addresses: readonly Address[],
): boolean {
  return side === "target" ? applies(rule.target, member) : isPeer(rule, member, member, addresses);
}

/** Whether some packet is covered by both rules. */
export function overlap(one: Parsed, other: Parsed): boolean {
  const protocols = new Set([one.protocol, other.protocol]);
  protocols.delete("any");
  if (protocols.size > 1) return false;
  const [a, b] = [one.ports, other.ports];
  if (a === undefined || b === undefined) return false;
  // An ICMP packet has no port.
  if (protocols.has("icmp")) return a === "any" && b === "any";
  return a === "any" || b === "any" || (a[0] <= b[1] && b[0] <= a[1]);
}
