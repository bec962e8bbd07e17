// What the rules say about one machine. Pure.

import { ownerOf, selfGroup } from "../../owner-group.ts";
import type { Node } from "../../protocol/node.ts";
import type { StoredRule } from "./rules.ts";

type Machine = Pick<Node, "id" | "groups" | "owner_groups" | "subnets" | "owner_id">;
type Side = StoredRule["peer"];

function isAbout(side: Side, machine: Machine): boolean {
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
  /** Its firewall lets these in. */
  letsIn: readonly StoredRule[];
  /** The firewalls of others let it in. */
  letIn: readonly StoredRule[];
  /** Its firewall lets these out. */
  letsOut: readonly StoredRule[];
};

/** A connection needs both: the sender's firewall lets it out, the receiver's lets it in. */
export function standingOf(rules: readonly StoredRule[], machine: Machine): Standing {
  const inbound = rules.filter(({ direction }) => direction === "inbound");
  return {
    letsIn: inbound.filter(({ target }) => isAbout(target, machine)),
    letIn: inbound.filter(({ peer }) => isAbout(peer, machine)),
    letsOut: rules.filter(({ direction, target }) => direction === "outbound" && isAbout(target, machine)),
  };
}

/** What a change of the machine's groups or networks adds to what rules say about it, and what it takes away. */
export function standingChange(rules: readonly StoredRule[], before: Machine, after: Machine) {
  const partsOf = (machine: Machine) => [
    ...Object.values(standingOf(rules, machine)),
    // Others may send to it.
    rules.filter(({ direction, peer }) => direction === "outbound" && isAbout(peer, machine)),
  ];
  const [old, next] = [partsOf(before), partsOf(after)];
  const beyond = (one: typeof old, other: typeof old) => [
    ...new Set(one.flatMap((part, at) => part.filter((rule) => other[at]?.includes(rule) !== true))),
  ];
  return { gains: beyond(next, old), loses: beyond(old, next) };
}

/** Machines that the rules name. */
export function namedIn(rules: readonly StoredRule[]): number[] {
  const ids = rules.flatMap(({ peer, target }) =>
    [peer, target].flatMap((side) => ("node" in side ? [side.node] : [])),
  );
  return [...new Set(ids)].sort((a, b) => a - b);
}
