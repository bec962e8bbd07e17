// Which rules let in what was observed: when each rule was used last, by how many nodes, on which ports. Pure. Compares by the
// bits of nodes (policy/node-classes.ts), so that 10,000 nodes with 2,000 rules take a second.

import { portRange, isSelf, type Rule } from "../../api/rules.ts";
import { formatTime } from "../../base/quantities.ts";
import { ownerGroupIn } from "../../protocol/users-groups.ts";
import type { Member } from "../policy/firewall.ts";
import { classify, laneOf, type Bits } from "../policy/node-classes.ts";
import type { Observed } from "./read.ts";

/** What a rule let in. */
export type Use = {
  flows: number;
  lastAt: number;
  /** The nodes that began the flows, and those that they went to. */
  senders: Set<number>;
  receivers: Set<number>;
  /** A sender whose address was no node's for the whole interval, or a host behind a router. */
  hasUnknown: boolean;
  /** Ports by protocol; 0 where the protocol has none. */
  ports: Map<string, Set<number>>;
};

/**
 * Whether packets of it were accepted: the receiver saw them, or the sender got an answer. A connection of TCP must have been
 * answered; of other protocols nothing else tells a use from an attempt.
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

/** As answers show it. All senders whose address was not one node's count as one. */
export const shownUse = (use: Use | undefined) => ({
  flows: use?.flows ?? 0,
  nodes: use === undefined ? 0 : use.senders.size + (use.hasUnknown ? 1 : 0),
  last_at: use === undefined ? null : formatTime(use.lastAt),
});

/** The uses of inbound rules, by the id of the rule. `members`: also the nodes of the past that flows name. */
export function* usesOf(
  rules: readonly Rule[],
  members: readonly Member[],
  observed: Iterable<Observed>,
): Generator<unknown, Map<number, Use>> {
  const inbound = rules.filter(({ direction }) => direction === "inbound");
  // Rules with the same text are one rule for the comparison: each of them gets its uses.
  const lane = yield* laneOf("inbound", inbound, inbound);
  const out = yield* laneOf("outbound", [], []);
  const bitsOf = new Map<number, Bits>();
  const ownerOf = new Map<number, string | undefined>();
  for (const { members: of, after } of yield* classify(out, lane, members, members))
    for (const { id, groups } of of) {
      bitsOf.set(id, after);
      ownerOf.set(id, ownerGroupIn(groups));
    }
  const uses = new Map<number, Use>();
  let done = 0;
  for (const each of observed) {
    if (++done % 500 === 0) yield;
    const to = bitsOf.get(each.to)?.inTarget;
    const from = bitsOf.get(each.from)?.inPeer;
    if (to === undefined || !isAccepted(each)) continue;
    for (const [place, word] of to.entries())
      for (let rest = word & (from?.[place] ?? -1); rest !== 0; rest &= rest - 1) {
        const { rule } = lane.rules[place * 32 + 31 - Math.clz32(rest & -rest)] ?? {};
        if (rule === undefined || !covers(rule, each)) continue;
        if (isSelf(rule.peer) && from !== undefined && ownerOf.get(each.from) !== ownerOf.get(each.to))
          continue;
        noteUse(uses, rule.id, each, from !== undefined);
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

function noteUse(uses: Map<number, Use>, ruleId: number, flow: Observed, isKnown: boolean): void {
  const { from, to, protocol, port, lastAt } = flow;
  const none = { flows: 0, lastAt: 0, senders: new Set<number>(), receivers: new Set<number>() };
  const use: Use = uses.get(ruleId) ?? { ...none, hasUnknown: false, ports: new Map() };
  uses.set(ruleId, use);
  use.flows += flowsIn(flow);
  use.lastAt = Math.max(use.lastAt, lastAt);
  use.receivers.add(to);
  if (isKnown) use.senders.add(from);
  else use.hasUnknown = true;
  use.ports.set(protocol, (use.ports.get(protocol) ?? new Set()).add(port));
}
