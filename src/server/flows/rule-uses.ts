// Finds which rules let in the observed flows: when each rule was used last, by how many nodes, on which ports. Compares bit sets
// of rules (policy/node-classes.ts), so that 10,000 nodes with 2,000 rules take a second. Pure.

import { portRange, isSelf, type Rule } from "../../api/rules.ts";
import { formatTime } from "../../base/quantities.ts";
import { ownerGroupIn } from "../../protocol/users-groups.ts";
import type { Member } from "../policy/firewall.ts";
import { classify, identityOf, laneOf, type Bits } from "../policy/node-classes.ts";
import type { Observed } from "./read-flows.ts";

/** What a rule let in. */
export type Use = {
  flows: number;
  lastAt: number;
  /** The ids of nodes that began the flows, and of those that the flows went to. */
  senders: Set<number>;
  receivers: Set<number>;
  /** Also used by an unknown sender: a host behind a router, or an address that no node had for the whole interval. */
  hasUnknown: boolean;
  /** Ports by protocol; 0 where the protocol has none. */
  ports: Map<string, Set<number>>;
};

/**
 * Whether packets of the flow were accepted. For TCP, the connection was answered, or it is an older one that went on. For other
 * protocols it is enough that the receiver saw them, since nothing else tells a use from an attempt.
 */
export function isAccepted({ protocol, sent, received }: Observed): boolean {
  const isAnswered = [sent, received].some(
    (each) => each !== undefined && (each.answered > 0 || each.flows === 0),
  );
  return isAnswered || (received !== undefined && protocol !== "tcp");
}

/** How many flows. Sender and receiver may have seen the same ones: the larger number counts. */
export const flowsIn = ({ sent, received }: Observed): number =>
  Math.max(sent?.flows ?? 0, received?.flows ?? 0);

/** As answers show it. All unknown senders count as one node. */
export const shownUse = (use: Use | undefined) => ({
  flows: use?.flows ?? 0,
  nodes: use === undefined ? 0 : use.senders.size + (use.hasUnknown ? 1 : 0),
  last_at: use === undefined ? null : formatTime(use.lastAt),
});

/**
 * The uses of inbound rules, by the id of the rule. `members`: also the nodes of the past that flows name. To be run by
 * `inSlices`: at each `yield` other requests may run.
 */
export function* usesOf(
  rules: readonly Rule[],
  members: readonly Member[],
  observed: Iterable<Observed>,
): Generator<unknown, Map<number, Use>> {
  const inbound = rules.filter(({ direction }) => direction === "inbound");
  // A lane has the rules of one direction. Rules that say the same are one rule of the lane: each of them gets its uses.
  // `laneOf` and `classify` compare a policy before and after a change. Here both are the same.
  const lane = yield* laneOf("inbound", inbound, inbound);
  const byIdentity = Map.groupBy(inbound, identityOf);
  const idsInLane = lane.rules.map(({ rule }) => byIdentity.get(identityOf(rule))?.map(({ id }) => id) ?? []);
  const noOutbound = yield* laneOf("outbound", [], []);
  const bitsOf = new Map<number, Bits>();
  const ownerOf = new Map<number, string | undefined>();
  // Classes of nodes that the rules do not tell apart: all nodes of a class have the same bits.
  for (const nodeClass of yield* classify(noOutbound, lane, members, members))
    for (const { id, groups } of nodeClass.members) {
      bitsOf.set(id, nodeClass.after);
      ownerOf.set(id, ownerGroupIn(groups));
    }
  const uses = new Map<number, Use>();
  let count = 0;
  for (const each of observed) {
    if (++count % 500 === 0) yield;
    // Bit sets of rules: those whose target the receiver is in, and those whose peer the sender is in.
    const toBits = bitsOf.get(each.to)?.inTarget;
    const fromBits = bitsOf.get(each.from)?.inPeer;
    if (toBits === undefined || !isAccepted(each)) continue;
    for (const [index, word] of toBits.entries())
      // Of an unknown sender, each rule to the receiver may have let it in. `bits &= bits - 1` drops the lowest bit.
      for (let bits = word & (fromBits?.[index] ?? -1); bits !== 0; bits &= bits - 1) {
        const lowestBit = 31 - Math.clz32(bits & -bits);
        const place = index * 32 + lowestBit;
        const { rule } = lane.rules[place] ?? {};
        if (rule === undefined || !covers(rule, each)) continue;
        const isOtherOwner = fromBits !== undefined && ownerOf.get(each.from) !== ownerOf.get(each.to);
        if (isSelf(rule.peer) && isOtherOwner) continue;
        for (const id of idsInLane[place] ?? []) noteUse(uses, id, each, fromBits !== undefined);
      }
  }
  return uses;
}

function covers({ protocol, ports }: Rule, flow: Observed): boolean {
  if (protocol !== "any" && protocol !== flow.protocol) return false;
  const range = portRange(ports) ?? "any";
  if (range === "any") return true;
  return ["tcp", "udp"].includes(flow.protocol) && flow.port >= range[0] && flow.port <= range[1];
}

function noteUse(uses: Map<number, Use>, ruleId: number, flow: Observed, isSenderKnown: boolean): void {
  const { from, to, protocol, port, lastAt } = flow;
  const none = { flows: 0, lastAt: 0, senders: new Set<number>(), receivers: new Set<number>() };
  const use = uses.getOrInsert(ruleId, { ...none, hasUnknown: false, ports: new Map() });
  use.flows += flowsIn(flow);
  use.lastAt = Math.max(use.lastAt, lastAt);
  use.receivers.add(to);
  if (isSenderKnown) use.senders.add(from);
  else use.hasUnknown = true;
  use.ports.getOrInsertComputed(protocol, () => new Set()).add(port);
}
