// The rules that concern one node. Pure.

import type { Rule as StoredRule } from "../../api/rules.ts";
import { networkOfGroup, userOfGroup, selfGroup } from "../../protocol/users-groups.ts";
import type { Node } from "../../protocol/node.ts";
import { common } from "./group-cells.ts";

/** What rules look at in a node. */
export type RuledNode = Pick<Node, "id" | "groups" | "owner_groups" | "subnets" | "owner_id">;
type Side = StoredRule["peer"];

/** Whether a side of a rule has the node. `self` has each node with an owner. */
function covers(side: Side, node: RuledNode): boolean {
  const { id, subnets, owner_id } = node;
  if ("any" in side) return true;
  if ("group" in side) {
    if (side.group === selfGroup) return typeof owner_id === "number";
    const network = networkOfGroup(side.group);
    if (network !== undefined) return subnets.includes(network);
    const owner = userOfGroup(side.group);
    return owner === undefined
      ? [node.groups, node.owner_groups].some((groups) => groups?.includes(side.group) === true)
      : owner === owner_id;
  }
  return "node" in side ? side.node === id : subnets.includes(side.cidr);
}

/** The rules that concern a node. */
export type RulesOfNode = {
  /** By these its firewall lets peers in. */
  inbound: readonly StoredRule[];
  /** By these the firewalls of peers let it in. */
  toPeers: readonly StoredRule[];
  /** By these its firewall lets packets to peers out. */
  outbound: readonly StoredRule[];
};

/** A connection needs both: the sender's firewall lets it out, the receiver's lets it in. */
export function rulesOfNode(rules: readonly StoredRule[], node: RuledNode): RulesOfNode {
  const allInbound = rules.filter(({ direction }) => direction === "inbound");
  return {
    inbound: allInbound.filter(({ target }) => covers(target, node)),
    toPeers: allInbound.filter(({ peer }) => covers(peer, node)),
    outbound: rules.filter(({ direction, target }) => direction === "outbound" && covers(target, node)),
  };
}

/** Rules by which others reach a node, and by which it reaches others. */
export type Reach = Record<"othersReachIt" | "itReaches", StoredRule[]>;

/** The rules that begin (`gains`) and cease (`loses`) to concern the node after a change of its groups or networks. */
export function standingChange(
  rules: readonly StoredRule[],
  before: RuledNode,
  after: RuledNode,
): Record<"gains" | "loses", Reach> {
  const onlyOf = (one: RuledNode, other: RuledNode) => {
    const isOnlyOf = (side: Side) => covers(side, one) && !covers(side, other);
    // The target of an inbound rule receives, the target of an outbound rule sends.
    const receiver = ({ direction, peer, target }: StoredRule) => (direction === "inbound" ? target : peer);
    const sender = ({ direction, peer, target }: StoredRule) => (direction === "inbound" ? peer : target);
    return {
      othersReachIt: rules.filter((rule) => isOnlyOf(receiver(rule))),
      itReaches: rules.filter((rule) => isOnlyOf(sender(rule))),
    };
  };
  return { gains: onlyOf(after, before), loses: onlyOf(before, after) };
}

/** The ids of the nodes that the rules name, ascending. */
export function namedIn(rules: readonly StoredRule[]): number[] {
  const ids = rules.flatMap(({ peer, target }) =>
    [peer, target].flatMap((side) => ("node" in side ? [side.node] : [])),
  );
  return [...new Set(ids)].sort((a, b) => a - b);
}

/** Whether `side`, the peer of a rule that concerns `own`, has `node`. The side `self` has it only if both have the same owner. */
const isPeer = (side: Side, node: RuledNode, own: RuledNode): boolean =>
  covers(side, node) && (!("group" in side) || side.group !== selfGroup || node.owner_id === own.owner_id);

/** Whether the rules let `from` send anything to `to`. */
function maySend(
  { outbound }: RulesOfNode,
  from: RuledNode,
  { inbound }: RulesOfNode,
  to: RuledNode,
): boolean {
  const into = inbound.filter(({ peer }) => isPeer(peer, from, to));
  const out = into.length === 0 ? [] : outbound.filter(({ peer }) => isPeer(peer, to, from));
  return into.some((one) => out.some((other) => common(one, other) !== undefined));
}

/** How many of the others a node may reach, and how many may reach it. */
export function reachOf(
  rules: readonly StoredRule[],
  node: RuledNode,
  others: readonly RuledNode[],
): Record<"reaches" | "reachedBy", number> {
  const own = rulesOfNode(rules, node);
  const named = new Set(namedIn(rules));
  // Ten thousand nodes are of a few kinds: those of one kind differ in nothing that rules look at. Groups of the owner follow
  // from the owner.
  const kinds = new Map<string, { one: RuledNode; count: number }>();
  for (const one of others) {
    const key = JSON.stringify([one.groups, one.subnets, one.owner_id, named.has(one.id) ? one.id : 0]);
    const kind = kinds.get(key) ?? { one, count: 0 };
    kind.count++;
    kinds.set(key, kind);
  }
  let reaches = 0;
  let reachedBy = 0;
  for (const { one, count } of kinds.values()) {
    const its = rulesOfNode(rules, one);
    if (maySend(own, node, its, one)) reaches += count;
    if (maySend(its, one, own, node)) reachedBy += count;
  }
  return { reaches, reachedBy };
}
