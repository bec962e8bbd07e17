// Narrows rules to the flows that were observed, for propose-policy.ts. The rules that replace a rule permit a part of what it
// permitted, and everything that was observed to use it. They name groups that exist, and no single nodes that it did not. Pure.

import type { Peer, Rule, Target } from "../../api/rules.ts";
import { countOf, formatTime } from "../../base/quantities.ts";
import { isUsersGroup, networkOfGroup } from "../../protocol/users-groups.ts";
import { applies, type Member } from "../policy/firewall.ts";
import { identityOf } from "../policy/node-classes.ts";
import { mergeRanges } from "../policy/packets.ts";
import type { Use } from "./rule-uses.ts";

/** What becomes of a rule. `into`: the rules in its place. */
export type RuleChange = { rule: Rule; what: "kept" | "narrowed" | "removed"; reason: string; into: Rule[] };

/** Ranges of ports of one protocol in place of one rule. */
const maxRanges = 5;
/** Rules in place of one rule. */
const maxParts = 12;
/** Groups in place of `any`. */
const maxGroups = 3;

/** What decides whether a rule was used. A rule is narrowed only if all nodes of its target reported completely. */
export type Evidence = {
  /** Active nodes. */
  members: readonly (Member & { isRouter: boolean })[];
  /** Why the reports of a node are not complete: a part of a sentence. Undefined: they are. */
  whyIncomplete(nodeId: number): string | undefined;
  /** A rule is judged only if it existed, and one of its targets was observed, since this time, ms. */
  begin: number;
  /** Since when the rule permits what it does, ms. */
  madeAt(ruleId: number): number;
  /** Since when the reports of a node are complete, ms. */
  seenSince(nodeId: number): number;
  uses: ReadonlyMap<number, Use>;
};

/** `keep: yearly audit` in its description marks a rule that stays. */
const keepMark = /^keep:\s*(.+)/i;

/** Decides what becomes of each rule. To be run by `inSlices`: at each `yield` other requests may run. */
export function* narrowRules(rules: readonly Rule[], evidence: Evidence): Generator<unknown, RuleChange[]> {
  // By identity, the id of the rule that has it, or that it was made from: a policy file must not have a rule twice. Of equal rules
  // the first one counts, or the first that is marked.
  const isMarked = ({ description }: Rule) => keepMark.test(description);
  const byPriority = [...rules.filter(isMarked), ...rules].toReversed();
  const known = new Map(byPriority.map((rule) => [identityOf(rule), rule.id]));
  const doubtAbout = makeDoubts(evidence);
  const changes: RuleChange[] = [];
  for (const rule of rules) {
    yield;
    const knownId = known.get(identityOf(rule));
    const change =
      knownId === rule.id
        ? narrowRule(rule, evidence, doubtAbout)
        : removed(rule, `it is rule ${knownId} again`);
    if (change.what !== "narrowed") {
      changes.push(change);
      continue;
    }
    const into = change.into.filter((each) => !known.has(identityOf(each)));
    for (const each of into) known.set(identityOf(each), rule.id);
    changes.push(
      into.length === 0 ? removed(rule, "other rules permit all that used it") : { ...change, into },
    );
  }
  return changes;
}

const removed = (rule: Rule, reason: string): RuleChange => ({ rule, what: "removed", reason, into: [] });

/** Why the reports of a target's nodes do not prove that a rule was not used; undefined: they do. */
type Doubts = (target: Target) => string | undefined;

/** Remembers the answer of each target. */
function makeDoubts(evidence: Evidence): Doubts {
  const known = new Map<string, string | undefined>();
  return (target) => {
    const key = JSON.stringify(target);
    const found = known.has(key)
      ? known.get(key)
      : doubtOf(
          evidence.members.filter((each) => applies(target, each)),
          evidence,
        );
    known.set(key, found);
    return found;
  };
}

function doubtOf(
  targets: Evidence["members"],
  { whyIncomplete, begin, seenSince }: Omit<Evidence, "members">,
): string | undefined {
  if (targets.length === 0) return "it has no node as its target now";
  const [first, ...more] = targets.flatMap(({ id, name }) => {
    const reason = whyIncomplete(id);
    return reason === undefined ? [] : [`${name} ${reason}`];
  });
  if (first !== undefined)
    return more.length === 0 ? first : `${first}, and ${countOf(more.length, "more node")}`;
  // The reports of each are complete since the node was registered. One at least must have been there all the time.
  const completeSince = Math.min(...targets.map(({ id }) => seenSince(id)));
  return completeSince > begin
    ? `its nodes report flows only since ${formatTime(completeSince)}, a shorter time than was asked about`
    : undefined;
}

/** The order matters: the first reason to keep the rule is the one that is told. */
function narrowRule(rule: Rule, evidence: Evidence, doubtAbout: Doubts): RuleChange {
  const kept = (reason: string): RuleChange => ({ rule, what: "kept", reason, into: [rule] });
  const [, mark] = keepMark.exec(rule.description) ?? [];
  if (mark !== undefined) return kept(`marked keep: ${mark}`);
  if (rule.direction === "outbound") return kept("flows say nothing of rules for outgoing traffic");
  if ("group" in rule.target && networkOfGroup(rule.target.group) !== undefined)
    return kept("a router does not tell its own flows from those of the network behind it");
  const doubt = doubtAbout(rule.target);
  if (doubt !== undefined) return kept(doubt);
  const madeAt = evidence.madeAt(rule.id);
  if (madeAt > evidence.begin)
    return kept(`it is as it is only since ${formatTime(madeAt)}, a shorter time than was asked about`);
  const use = evidence.uses.get(rule.id);
  if (use === undefined) return removed(rule, "nothing used it");
  if (use.ports.has("other")) return kept("other protocols than TCP, UDP and ICMP used it");
  const parts = partsOf(rule, use);
  // A router as the receiver: the flow may have gone to a network behind it, so the target stays.
  const isRouted = evidence.members.some(({ id, isRouter }) => isRouter && use.receivers.has(id));
  const peers = (use.hasUnknown ? undefined : coverOf(rule.peer, use.senders, evidence)) ?? [rule.peer];
  const receivers = (isRouted ? undefined : coverOf(rule.target, use.receivers, evidence)) ?? [rule.target];
  const whole = [rule.target];
  // The narrowest choice that does not become too many rules. The last choice narrows only protocols and ports.
  const narrow = [
    { peers, receivers },
    { peers, receivers: whole },
  ].find((each) => each.peers.length * each.receivers.length * parts.length <= maxParts);
  const chosen = narrow ?? { peers: [rule.peer], receivers: whole };
  const into = chosen.peers.flatMap((peer) =>
    chosen.receivers.flatMap((target) => parts.map((part) => ({ ...rule, ...part, peer, target }))),
  );
  const isSame = into.length === 1 && into.every((each) => identityOf(each) === identityOf(rule));
  return isSame ? kept("all of it was used") : { rule, what: "narrowed", reason: "only this was used", into };
}

type Part = Pick<Rule, "protocol" | "ports">;

function partsOf({ ports }: Rule, { ports: used }: Use): Part[] {
  return (["tcp", "udp", "icmp"] as const).flatMap((protocol): Part[] => {
    const usedPorts = [...(used.get(protocol) ?? [])];
    // Packets without a port (0) are let in only by a rule for all ports.
    if (usedPorts.includes(0) || (protocol === "icmp" && usedPorts.length > 0)) return [{ protocol, ports }];
    return rangesOf(usedPorts).map(([first, last]) => ({
      protocol,
      ports: first === last ? String(first) : `${first}-${last}`,
    }));
  });
}

/** At most `maxRanges` ranges that hold these ports: the smallest gaps between them are closed. */
function rangesOf(used: readonly number[]) {
  const ranges = mergeRanges(used.map((port) => [port, port]));
  const gaps = ranges.slice(1).map(([first], index) => first - (ranges[index]?.[1] ?? 0));
  // The largest gaps stay, one less than there may be ranges. The next one is the largest that is closed; undefined: none is.
  const largestClosed = gaps.toSorted((a, b) => b - a)[maxRanges - 1];
  return mergeRanges(ranges, largestClosed);
}

/** A few existing groups that can replace `any`: they hold all nodes of `ids`, and not every node. Undefined: there are none. */
function coverOf(
  side: Peer,
  ids: ReadonlySet<number>,
  { members }: Evidence,
): { group: string }[] | undefined {
  if (!("any" in side)) return undefined;
  const used = members.filter(({ id }) => ids.has(id));
  if (used.length < ids.size || used.length === 0) return undefined;
  const cover: string[] = [];
  for (let left = used; left.length > 0;) {
    const counts = new Map<string, number>();
    for (const { groups } of left)
      for (const group of new Set(groups))
        if (!isUsersGroup(group)) counts.set(group, (counts.get(group) ?? 0) + 1);
    const [best] = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    if (best === undefined || cover.length === maxGroups) return undefined;
    cover.push(best[0]);
    left = left.filter(({ groups }) => !groups.includes(best[0]));
  }
  const isWhole = members.every(({ groups }) => cover.some((group) => groups.includes(group)));
  return isWhole ? undefined : cover.map((group) => ({ group }));
}
