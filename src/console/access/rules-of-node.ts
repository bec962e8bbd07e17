// The rules that concern one node. Pure.

import type { Rule as StoredRule } from "../../api/rules.ts";
import { networkOfGroup, userOfGroup, selfGroup } from "../../protocol/users-groups.ts";
import type { Node } from "../../protocol/node.ts";
import { common } from "./group-cells.ts";

export type Standee = Pick<Node, "id" | "groups" | "owner_groups" | "subnets" | "owner_id">;
type Side = StoredRule["peer"];

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

export type Standing = {
  /** Peers that its firewall lets in. */
  letsIn: readonly StoredRule[];
  /** Peers whose firewalls let it in. */
  letIn: readonly StoredRule[];
  /** Peers to which its firewall lets packets out. */
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
export type Reach = Record<"others" | "it", StoredRule[]>;

/** The rules that begin and cease to concern the node after a change of its groups or networks. */
export function standingChange(
  rules: readonly StoredRule[],
  before: Standee,
  after: Standee,
): Record<"gains" | "loses", Reach> {
  const beyond = (one: Standee, other: Standee) => {
    const isNew = (side: Side) => covers(side, one) && !covers(side, other);
    // An outbound rule has its sender as target.
    const by = (inbound: "peer" | "target", outbound: "peer" | "target") =>
      rules.filter((rule) => isNew(rule[rule.direction === "inbound" ? inbound : outbound]));
    return { others: by("target", "peer"), it: by("peer", "target") };
  };
  return { gains: beyond(after, before), loses: beyond(before, after) };
}

/** Nodes that the rules name. */
export function namedIn(rules: readonly StoredRule[]): number[] {
  const ids = rules.flatMap(({ peer, target }) =>
    [peer, target].flatMap((side) => ("node" in side ? [side.node] : [])),
  );
  return [...new Set(ids)].sort((a, b) => a - b);
}

/** `self` is the nodes with the same owner. */
const isPeer = (side: Side, node: Standee, of: Standee): boolean =>
  covers(side, node) && (!("group" in side) || side.group !== selfGroup || node.owner_id === of.owner_id);

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
  let [reaches, reachedBy] = [0, 0];
  for (const { one, count } of kinds.values()) {
    const its = standingOf(rules, one);
    if (maySend(own, node, its, one)) reaches += count;
    if (maySend(its, one, own, node)) reachedBy += count;
  }
  return { reaches, reachedBy };
}
