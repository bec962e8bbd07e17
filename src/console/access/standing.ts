// The rules that concern one machine. Pure.

import type { Rule as StoredRule } from "../../api/rules.ts";
import { ownerOf, selfGroup } from "../../protocol/owner-group.ts";
import type { Node } from "../../protocol/node.ts";

type Machine = Pick<Node, "id" | "groups" | "owner_groups" | "subnets" | "owner_id">;
type Side = StoredRule["peer"];

function covers(side: Side, machine: Machine): boolean {
  const { id, subnets, owner_id } = machine;
  if ("any" in side) return true;
  if ("group" in side) {
    if (side.group === selfGroup) return typeof owner_id === "number";
    const owner = ownerOf(side.group);
    return owner === undefined
      ? [machine.groups, machine.owner_groups].some((groups) => groups?.includes(side.group) === true)
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
export function standingOf(rules: readonly StoredRule[], machine: Machine): Standing {
  const inbound = rules.filter(({ direction }) => direction === "inbound");
  return {
    letsIn: inbound.filter(({ target }) => covers(target, machine)),
    letIn: inbound.filter(({ peer }) => covers(peer, machine)),
    letsOut: rules.filter(({ direction, target }) => direction === "outbound" && covers(target, machine)),
  };
}

/** Rules by which others reach a machine, and by which it reaches others. */
export type Reach = Record<"others" | "it", StoredRule[]>;

/** The rules that begin and cease to concern the machine after a change of its groups or networks. */
export function standingChange(
  rules: readonly StoredRule[],
  before: Machine,
  after: Machine,
): Record<"gains" | "loses", Reach> {
  const beyond = (one: Machine, other: Machine) => {
    const isNew = (side: Side) => covers(side, one) && !covers(side, other);
    // An outbound rule has its sender as target.
    const by = (inbound: "peer" | "target", outbound: "peer" | "target") =>
      rules.filter((rule) => isNew(rule[rule.direction === "inbound" ? inbound : outbound]));
    return { others: by("target", "peer"), it: by("peer", "target") };
  };
  return { gains: beyond(after, before), loses: beyond(before, after) };
}

/** Machines that the rules name. */
export function namedIn(rules: readonly StoredRule[]): number[] {
  const ids = rules.flatMap(({ peer, target }) =>
    [peer, target].flatMap((side) => ("node" in side ? [side.node] : [])),
  );
  return [...new Set(ids)].sort((a, b) => a - b);
}
