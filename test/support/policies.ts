// Random policies and nodes, and a reader of rendered engine rules that shares no code with the server.

import { parseAddress, parseNetwork, networkContains } from "../../src/base/ip.ts";
import type { EngineRules, Member } from "../../src/server/policy/firewall.ts";
import type { Rule } from "../../src/api/rules.ts";
import { ownerGroup, userOfGroup, selfGroup } from "../../src/protocol/users-groups.ts";
import { makeRandom } from "./random.ts";

const groups = ["web", "db", "staff", "edge", "ops", "lab"];
const owners = [1, 2, 3, 4].map(ownerGroup);
const ports = ["any", "any", "22", "80-90", "85-100", "443", "1-65535", "8000-8010"];

export type RandomPolicy = { rules: Rule[]; members: Member[] };

export function makePolicies(seed: number) {
  const random = makeRandom(seed);
  const below = (count: number) => Math.floor(random() * count);
  const pick = <T>(list: readonly T[]): T => {
    const found = list[below(list.length)];
    if (found === undefined) throw new Error("an empty list");
    return found;
  };
  const some = () => groups.filter(() => random() < 0.25);
  /** The groups that a policy gives to the nodes of each user. */
  const someByOwner = () => new Map(owners.map((owner) => [owner, random() < 0.5 ? [] : some()]));
  const member = (id: number, byOwner: ReadonlyMap<string, string[]>): Member => {
    const owner = random() < 0.6 ? pick(owners) : undefined;
    const owned = owner === undefined ? [] : [...(byOwner.get(owner) ?? []), owner];
    return {
      id,
      name: `n${id}`,
      ip: `10.7.${id % 3}.${id}`,
      ip6: id % 2 === 0 ? `fd00::${id}` : null,
      groups: [...new Set([...some(), ...owned])],
    };
  };
  const side = (count: number) => {
    const kind = random();
    if (kind < 0.15) return { any: true as const };
    if (kind < 0.25) return { group: pick(owners) };
    return kind < 0.75 ? { group: pick(groups) } : { node: 1 + below(count) };
  };
  const peer = (count: number) =>
    random() < 0.2
      ? { group: selfGroup }
      : random() < 0.2
        ? { cidr: pick(["10.7.0.0/24", "10.7.1.0/24", "10.7.0.8/29", "fd00::/16"]) }
        : side(count);
  const rule = (id: number, count: number): Rule => {
    const protocol = pick(["any", "tcp", "udp", "icmp"] as const);
    return {
      id,
      direction: random() < 0.6 ? "inbound" : "outbound",
      protocol,
      ports: protocol === "icmp" ? "any" : pick(ports),
      peer: peer(count),
      target: side(count),
      description: "",
    };
  };
  const policy = (count: number): RandomPolicy => {
    const byOwner = someByOwner();
    const members = Array.from({ length: count }, (_, at) => member(at + 1, byOwner));
    const rules = Array.from({ length: below(14) }, (_, at) => rule(at + 1, count));
    if (random() < 0.5) {
      const everything = { any: true as const };
      const out = { direction: "outbound", protocol: "any", ports: "any", description: "" } as const;
      rules.push({ id: 99, ...out, peer: everything, target: everything });
    }
    return { rules, members };
  };
  /** The policy with some rules and memberships exchanged. */
  const edited = ({ rules, members }: RandomPolicy): RandomPolicy => ({
    rules: [
      ...rules.filter(() => random() < 0.8),
      ...Array.from({ length: below(3) }, (_, at) => rule(200 + at, members.length)),
    ],
    members: regrouped(members),
  });
  /** A policy gives groups to nodes and to the nodes of users, and no owners. */
  const regrouped = (members: readonly Member[]): Member[] => {
    const byOwner = someByOwner();
    const changed = new Set(owners.filter(() => random() < 0.2));
    return members.map((each) => {
      const owner = each.groups.find((group) => userOfGroup(group) !== undefined);
      const isOwners = owner !== undefined && changed.has(owner);
      if (!isOwners && random() >= 0.05) return each;
      const owned = owner === undefined ? [] : [...(byOwner.get(owner) ?? []), owner];
      return { ...each, groups: [...new Set([...some(), ...owned])] };
    });
  };
  return { policy, edited, below, pick };
}

/** The ports at which any rule begins or ends to match. */
export function edgesOf(rules: readonly Rule[]): number[] {
  const edges = rules.flatMap(({ ports: text }) => {
    if (text === "any") return [];
    const [first = 0, last = first] = text.split("-").map(Number);
    return [first - 1, first, last, last + 1];
  });
  return [...new Set([1, 65_535, ...edges])]
    .filter((port) => port >= 1 && port <= 65_535)
    .sort((a, b) => a - b);
}

/** Whether an engine with these rules passes the packet from or to the peer, as its documentation says. */
export function enginePasses(
  rules: EngineRules["inbound"],
  peer: Member,
  packet: { protocol: string; port?: number },
): boolean {
  const addresses = [peer.ip, peer.ip6 ?? ""].flatMap((text) => parseAddress(text) ?? []);
  return rules.some(({ proto, port, host, group, cidr }) => {
    if (proto !== "any" && proto !== packet.protocol) return false;
    const [first = 0, last = first] = (port ?? "any").split("-").map(Number);
    if (port !== undefined && port !== "any") {
      if (packet.port === undefined || packet.port < first || packet.port > last) return false;
    }
    if (host !== undefined) return host === "any" || host === peer.name;
    if (group !== undefined) return peer.groups.includes(group);
    const network = parseNetwork(cidr ?? "");
    return network !== undefined && addresses.some((address) => networkContains(network, address));
  });
}
