// Rules as the page Access edits them: sides are words, as in a policy file, so that typing one is enough.

import type { Peer as Side, Rule as StoredRule } from "../../api/rules.ts";
import type { Node } from "../../protocol/node.ts";
import { networkOfGroup, userOfGroup, providerOfGroup, selfGroup } from "../../protocol/users-groups.ts";

/** A node, as rules and their effects name it. */
export type Named = Pick<Node, "groups" | "owner_groups">;
/**
 * `id`: below zero for a rule that is not saved yet.
 *
 * `peer` and `target`: `any`, `group:web`, `node:db-1`, `user:ada@example.org`, `idp:Engineering`. A network is `10.1.0.0/16` as
 * peer, `network:10.1.0.0/16` as target. A peer may be `self`: the nodes with the same owner. What has no name any more has a
 * number: `node:#7 db-1` is revoked, `node:#7` deleted, `user:#7` no member, `idp:#3.…` a group of a
 * deleted provider.
 */
export type Rule = Omit<StoredRule, "peer" | "target"> & { peer: string; target: string };

/** Whether a side is the nodes of a user. */
export const isOwnerSide = (side: Side): boolean => "group" in side && userOfGroup(side.group) !== undefined;

/** Whether a side is the nodes of the users in a group at a provider of identities. */
export const isProviderSide = (side: Side): boolean =>
  "group" in side && providerOfGroup(side.group) !== undefined;

/**
 * A stored rule in words. `names`: of nodes, by id. `members`: email addresses, by the user's id. `providerGroups`: words of the
 * groups of providers, by the group that the rule has.
 */
export function toRule(
  rule: StoredRule,
  names: ReadonlyMap<number, string>,
  members: ReadonlyMap<number, string>,
  providerGroups: ReadonlyMap<string, string>,
): Rule {
  const word = (side: Side) => {
    if ("any" in side) return "any";
    if ("group" in side) {
      if (side.group === selfGroup) return "self";
      const network = networkOfGroup(side.group);
      if (network !== undefined) return `network:${network}`;
      if (providerOfGroup(side.group) !== undefined)
        return providerGroups.get(side.group) ?? `idp:#${side.group.slice("idp:".length)}`;
      const owner = userOfGroup(side.group);
      return owner === undefined ? `group:${side.group}` : `user:${members.get(owner) ?? `#${owner}`}`;
    }
    return "cidr" in side ? side.cidr : `node:${names.get(side.node) ?? `#${side.node}`}`;
  };
  return { ...rule, peer: word(rule.peer), target: word(rule.target) };
}

export const namesOf = (nodes: readonly Pick<Node, "id" | "name">[]): ReadonlyMap<number, string> =>
  new Map(nodes.map(({ id, name }) => [id, name]));

/** Whether no word of a policy file can name the node or user any more. */
export const isAboutGone = ({ peer, target }: Rule): boolean =>
  [peer, target].some((word) => /^(node|user|idp):#/.test(word));

/** Sender and receiver. An outbound rule is about its targets' way to the peer. */
export const endsOf = ({ direction, peer, target }: Rule): { from: string; to: string } =>
  direction === "inbound" ? { from: peer, to: target } : { from: target, to: peer };

/** The rule with other ends: the reverse of `endsOf`. */
export function withEnds(rule: Rule, { from, to }: { from: string; to: string }): Rule {
  return rule.direction === "inbound"
    ? { ...rule, peer: from, target: to }
    : { ...rule, target: from, peer: to };
}

/** "tcp 5432", "port 53", "icmp", "anything". */
export function trafficOf({ protocol, ports }: Record<"protocol" | "ports", string>): string {
  if (ports !== "any") return protocol === "any" ? `port ${ports}` : `${protocol} ${ports}`;
  return protocol === "any" ? "anything" : protocol;
}

/** The same in a sentence, where a protocol without ports would be ambiguous. */
export function trafficWords(rule: Record<"protocol" | "ports", string>): string {
  const hasPorts = rule.protocol === "tcp" || rule.protocol === "udp";
  return hasPorts && rule.ports === "any" ? `${rule.protocol}, any port` : trafficOf(rule);
}

/** The ports that the control plane would refuse, in a sentence. */
export function portsFault(ports: string): string | undefined {
  if (ports === "any") return undefined;
  if (!/^\d{1,5}(-\d{1,5})?$/.test(ports)) return "Enter any, a port or a range such as 8000-8010.";
  const [first = 0, last = first] = ports.split("-").map(Number);
  const isRange = first >= 1 && last <= 65_535 && first <= last;
  return isRange ? undefined : "Enter ports from 1 to 65535, the lower one first.";
}

/** A side of a sentence: what stands before its name, and the name. */
export function sideWords(word: string): { before: string; name: string } {
  if (word === "any") return { before: "", name: "all nodes" };
  if (word === "self") return { before: "", name: "nodes with the same owner" };
  if (word.startsWith("group:")) return { before: "nodes in ", name: word.slice("group:".length) };
  if (word.startsWith("network:")) return { before: "", name: word.slice("network:".length) };
  if (word.startsWith("user:#")) return { before: "", name: `nodes of a former member (${word.slice(6)})` };
  if (word.startsWith("idp:#")) return { before: "", name: "nodes of a deleted provider's group" };
  if (word.startsWith("idp:")) return { before: "nodes of users in ", name: word.slice("idp:".length) };
  if (word.startsWith("user:")) return { before: "nodes of ", name: word.slice("user:".length) };
  const [, id, revoked] = /^node:#(\d+) ?(.*)/.exec(word) ?? [];
  if (id !== undefined)
    return {
      before: "",
      name: revoked ? `${revoked} (revoked)` : `a revoked or deleted node (id ${id})`,
    };
  return { before: "", name: word.startsWith("node:") ? word.slice("node:".length) : word };
}

export const sideText = (word: string): string => sideWords(word).before + sideWords(word).name;

/** "web may reach db on tcp 5432". */
export function sentenceOf(rule: Rule): string {
  const { from, to } = endsOf(rule);
  return `${sideText(from)} may ${verbOf(rule)} ${sideText(to)} on ${trafficWords(rule)}`;
}

/** The receiver's firewall lets in, the sender's lets out: a connection needs both. */
export const verbOf = ({ direction }: Pick<Rule, "direction">): string =>
  direction === "inbound" ? "reach" : "send to";

/** What makes a rule: the control plane has no two rules that are equal in this. */
export const identityOf = ({ direction, protocol, ports, peer, target }: Rule): string =>
  JSON.stringify([direction, protocol, ports, peer, target]);
export const contentOf = (rule: Rule): string => identityOf(rule) + rule.description;
