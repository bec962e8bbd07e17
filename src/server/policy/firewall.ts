// Firewall rules of an organization: their schema, their translation into the engine's rules for one node, and the
// answer to "may A reach B". Pure. The engine only knows permissions, so what no rule permits is refused.

import * as v from "valibot";
import { Cidr } from "../../engine-config.ts";
import { parseAddress, parseNetwork, networkContains } from "../../ip.ts";
import { atLeast, type EngineVersion } from "../../engine-features.ts";

/** `any` is the engine's word for everybody, whatever field it stands in, so nothing may be called that. */
export const GroupName = v.pipe(
  v.string(),
  v.regex(/^[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}$/, "A group name is 1 to 63 of letters, digits, _ . : and -."),
  v.check((name) => name.toLowerCase() !== "any", '"any" means everybody and cannot be a name.'),
);

export const Ports = v.pipe(
  v.string(),
  v.regex(/^(any|\d{1,5}(-\d{1,5})?)$/, "Enter any, a port or a range such as 8000-8010."),
  v.check((text) => portRange(text) !== undefined, "Ports are 1 to 65535, the lower one first."),
);

/** Not beyond what a database holds. */
export const NodeId = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(Number.MAX_SAFE_INTEGER));
const everybody = v.strictObject({ any: v.literal(true) });
const oneGroup = v.strictObject({ group: GroupName });
const oneNode = v.strictObject({ node: NodeId });

export const Peer = v.union([everybody, oneGroup, oneNode, v.strictObject({ cidr: Cidr })]);
export type Peer = v.InferOutput<typeof Peer>;
export const Target = v.union([everybody, oneGroup, oneNode]);
export type Target = v.InferOutput<typeof Target>;
export const Protocol = v.picklist(["any", "tcp", "udp", "icmp"]);
export type Protocol = v.InferOutput<typeof Protocol>;

const ruleFields = {
  direction: v.picklist(["inbound", "outbound"]),
  protocol: Protocol,
  ports: Ports,
  peer: Peer,
  target: Target,
  description: v.optional(v.pipe(v.string(), v.maxLength(255))),
};

export const RuleRequest = v.pipe(
  v.strictObject(ruleFields),
  v.forward(
    v.check((rule) => rule.protocol !== "icmp" || rule.ports === "any", "ICMP has no ports: enter any."),
    ["ports"],
  ),
);
export type RuleRequest = v.InferOutput<typeof RuleRequest>;
export const RulePatch = v.partial(v.strictObject(ruleFields));
export type RulePatch = v.InferOutput<typeof RulePatch>;
export type Rule = Omit<RuleRequest, "description"> & { id: number; description: string };

/** The two rules every organization begins with; they are ordinary rules and can be deleted. */
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

/** What a rule looks at in a node. */
export type Member = {
  id: number;
  name: string;
  ip: string;
  ip6: string | null;
  groups: readonly string[];
};

type EngineRule = Record<string, string>;
export type EngineRules = { inbound: EngineRule[]; outbound: EngineRule[] };

/**
 * The engine's rules for one node. Each has exactly one of host, group and cidr: the engine takes several of them
 * in one rule as alternatives, so a second one would widen the rule. A peer node is named by its certificate's name;
 * a rule about a node that is gone permits nothing.
 */
export function compileRules(
  rules: readonly Rule[],
  self: Member,
  nodeNames: ReadonlyMap<number, string>,
  engine: EngineVersion,
): EngineRules {
  const compiled: EngineRules = { inbound: [], outbound: [] };
  for (const rule of rules) {
    if (!applies(rule.target, self)) continue;
    const peer = enginePeer(rule.peer, nodeNames, engine);
    if (peer === undefined) continue;
    const portless = rule.protocol === "icmp" && atLeast(engine, 1, 11);
    compiled[rule.direction].push({
      ...(portless ? {} : { port: rule.ports }),
      proto: rule.protocol,
      ...peer,
    });
  }
  return compiled;
}

function applies(target: Target, self: Member): boolean {
  if ("node" in target) return target.node === self.id;
  if ("group" in target) return self.groups.includes(target.group);
  return true;
}

function enginePeer(
  peer: Peer,
  nodeNames: ReadonlyMap<number, string>,
  engine: EngineVersion,
): Record<string, string> | undefined {
  if ("any" in peer) return { host: "any" };
  if ("group" in peer) return { group: peer.group };
  if ("cidr" in peer) {
    // Engines below 1.10 have no IPv6 in the overlay and choke on its networks.
    return peer.cidr.includes(":") && !atLeast(engine, 1, 10) ? undefined : { cidr: peer.cidr };
  }
  const name = nodeNames.get(peer.node);
  return name === undefined ? undefined : { host: name };
}

export const RuleTest = v.strictObject({
  from: NodeId,
  to: NodeId,
  protocol: v.picklist(["tcp", "udp", "icmp"]),
  port: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(65_535))),
});
export type RuleTest = v.InferOutput<typeof RuleTest>;

export type Verdict = { allowed: boolean; rule_id: number | null; reason: string };
type Packet = { protocol: "tcp" | "udp" | "icmp"; port?: number | undefined };

/**
 * May `from` open a connection to `to`? The sender's outbound rules and the receiver's inbound rules must both
 * permit it; answers of an established connection need no rule. `rule_id` is the inbound rule that lets it in, or
 * null where nothing does.
 */
export function decide(rules: readonly Rule[], from: Member, to: Member, packet: Packet): Verdict {
  const what = packet.protocol === "icmp" ? "icmp" : `${packet.protocol}/${packet.port ?? "any"}`;
  const out = rules.find((rule) => permits(rule, "outbound", from, to, packet));
  if (out === undefined) {
    return {
      allowed: false,
      rule_id: null,
      reason: `No outbound rule of ${from.name} permits ${what} to ${to.name}.`,
    };
  }
  const into = rules.find((rule) => permits(rule, "inbound", to, from, packet));
  if (into === undefined) {
    return {
      allowed: false,
      rule_id: null,
      reason: `No inbound rule of ${to.name} permits ${what} from ${from.name}.`,
    };
  }
  return {
    allowed: true,
    rule_id: into.id,
    reason: `Rule ${out.id} lets ${what} out of ${from.name}, rule ${into.id} lets it into ${to.name}.`,
  };
}

function permits(
  rule: Rule,
  direction: Rule["direction"],
  self: Member,
  peer: Member,
  packet: Packet,
): boolean {
  return (
    rule.direction === direction &&
    applies(rule.target, self) &&
    (rule.protocol === "any" || rule.protocol === packet.protocol) &&
    coversPort(rule.ports, packet) &&
    isPeer(rule.peer, peer)
  );
}

function coversPort(ports: string, packet: Packet): boolean {
  const range = portRange(ports);
  if (range === undefined || range === "any") return range === "any";
  // An ICMP packet has no port for the engine, so a rule for some ports never covers it.
  if (packet.protocol === "icmp" || packet.port === undefined) return false;
  return packet.port >= range[0] && packet.port <= range[1];
}

function isPeer(rule: Peer, peer: Member): boolean {
  if ("any" in rule) return true;
  if ("group" in rule) return peer.groups.includes(rule.group);
  if ("node" in rule) return rule.node === peer.id;
  const network = parseNetwork(rule.cidr);
  return [peer.ip, peer.ip6].some((text) => {
    const address = text === null ? undefined : parseAddress(text);
    return network !== undefined && address !== undefined && networkContains(network, address);
  });
}

function portRange(text: string): "any" | readonly [number, number] | undefined {
  if (text === "any") return "any";
  const [first = 0, last = first] = text.split("-").map(Number);
  return first >= 1 && first <= last && last <= 65_535 ? [first, last] : undefined;
}
