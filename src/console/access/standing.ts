// What the rules say about one machine. Pure.

import type { StoredRule } from "./rules.ts";

type Machine = { id: number; groups: readonly string[]; subnets: readonly string[] };
type Side = StoredRule["peer"];

function isAbout(side: Side, { id, groups, subnets }: Machine): boolean {
  if ("any" in side) return true;
  if ("group" in side) return groups.includes(side.group);
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

/** Machines that the rules name. */
export function namedIn(rules: readonly StoredRule[]): number[] {
  const ids = rules.flatMap(({ peer, target }) =>
    [peer, target].flatMap((side) => ("node" in side ? [side.node] : [])),
  );
  return [...new Set(ids)].sort((a, b) => a - b);
}
