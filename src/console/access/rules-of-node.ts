// The rules that concern one node. Pure.

import type { Rule as StoredRule } from "../../api/rules.ts";
import { networkOfGroup, userOfGroup, selfGroup } from "../../protocol/users-groups.ts";
import type { Node } from "../../protocol/node.ts";
import { common } from "./group-cells.ts";

/** What rules look at in a node. */
export type Standee = Pick<Node, "id" | "groups" | "owner_groups" | "subnets" | "owner_id">;
type Side = StoredRule["peer"];

/** Whether a side of a rule has the node. `self` has each node with an owner. */
function covers(side: Side, node: Standee): boolean {
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
export type Standing = {
  /** By these its firewall lets peers in. */
  letsIn: readonly StoredRule[];
  /** By these the firewalls of peers let it in. */
  letIn: readonly StoredRule[];
  /** By these its firewall lets packets to peers out. */
  letsOut: readonly StoredRule[];
};

/** A connection needs both: the sender's firewall lets it out, the receiver's lets it in. */
export function standingOf(rules: readonly StoredRule[], node: Standee): Standing {
  const inbound = rules.filter(({ direction }) => direction === "inbound");
  return {
    letsIn: inbound.filter(({ target }) => covers(target, node)),
    letIn: inbound.filter(({ peer }) => covers(peer, node)),
    letsOut: rules.filter(({ direction, target }) => direction === "outbound" && covers(target, node)),
  };
}

/** Rules by which others reach a node, and by which it reaches others. */
export type Reach = Record<"othersReachIt" | "itReaches", StoredRule[]>;

/** The rules that begin (`gains`) and cease (`loses`) to concern the node after a change of its groups or networks. */
export function standingChange(
  rules: readonly StoredRule[],
  before: Standee,
  after: Standee,
): Record<"gains" | "loses", Reach> {
  const onlyOf = (one: Standee, other: Standee) => {
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

/** Whether a rule about `own`, whose peer is `side`, has `node` as peer: of `self`, only if both have the same owner. */
const isPeer = (side: Side, node: Standee, own: Standee): boolean =>
  covers(side, node) && (!("group" in side) || side.group !== selfGroup || node.owner_id === own.owner_id);

/** Whether the rules let one send anything to the other. */
function maySend({ letsOut }: Standing, from: Standee, { letsIn }: Standing, to: Standee): boolean {
  const into = letsIn.filter(({ peer }) => isPeer(peer, from, to));
  const out = into.length === 0 ? [] : letsOut.filter(({ peer }) => isPeer(peer, to, from));
  return into.some((one) => out.some((other) => common(one, other) !== undefined));
}

/** How many of the others a node may reach, and how many may reach it. */
export function reachOf(
  rules: readonly StoredRule[],
  node: Standee,
  others: readonly Standee[],
): Record<"reaches" | "reachedBy", number> {
  const own = standingOf(rules, node);
  const named = new Set(namedIn(rules));
  // Ten thousand nodes are of a few kinds.
  const kinds = new Map<string, { one: Standee; count: number }>();
  for (const one of others) {
    const key = JSON.stringify([one.groups, one.subnets, one.owner_id, named.has(one.id) ? one.id : 0]);
    const kind = kinds.get(key) ?? { one, count: 0 };
    kind.count++;
    kinds.set(key, kind);
  }
  let reaches = 0;
  let reachedBy = 0;
  for (const { one, count } of kinds.values()) {
    const its = standingOf(rules, one);
    if (maySend(own, node, its, one)) reaches += count;
    if (maySend(its, one, own, node)) reachedBy += count;
  }
  return { reaches, reachedBy };
}
