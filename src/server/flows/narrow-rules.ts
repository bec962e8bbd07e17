// Narrows rules to what was observed. Every rule that comes of it permits a part of what the former one did, and all of what was
// observed of it. Groups stay as they are, and no rule names a single node that the former one did not. Pure.

import type { Peer, Rule, Target } from "../../api/rules.ts";
import { countOf, formatTime } from "../../base/quantities.ts";
import { isUsersGroup, networkOfGroup } from "../../protocol/users-groups.ts";
import { applies, type Member } from "../policy/firewall.ts";
import { identityOf } from "../policy/node-classes.ts";
import { merged } from "../policy/packets.ts";
import type { Use } from "./rule-uses.ts";

/** What becomes of a rule. `into`: the rules in its place. */
export type RuleChange = { rule: Rule; what: "kept" | "narrowed" | "removed"; reason: string; into: Rule[] };

/** Ranges of ports of one protocol that come of one rule, and rules that come of it in all. */
const mostRanges = 5;
const mostParts = 12;
const mostGroups = 3;

/**
 * What tells whether a rule was used. All `members` must report, for a rule to be narrowed. `whyNot`: why the reports of a node
 * are not complete.
 */
export type Evidence = {
  /** Active nodes. */
  members: readonly (Member & { isRouter: boolean })[];
  whyNot(nodeId: number): string | undefined;
  /** A rule is judged if it was there and its target side was observed since this time, ms. */
  begin: number;
  madeAt(ruleId: number): number;
  /** Since when the reports of a node are complete, ms. */
  seenSince(nodeId: number): number;
  uses: ReadonlyMap<number, Use>;
};

/** `keep: yearly audit` in its description marks a rule that stays. */
const keepMark = /^keep:\s*(.+)/i;

export function* narrowRules(rules: readonly Rule[], evidence: Evidence): Generator<unknown, RuleChange[]> {
  // By the first rule that permits it. The same rule twice in one file is refused.
  const known = new Map(rules.toReversed().map((rule) => [identityOf(rule), rule.id]));
  const doubtAbout = makeDoubts(evidence);
  const changes: RuleChange[] = [];
  for (const rule of rules) {
    yield;
    const first = known.get(identityOf(rule));
    const change =
      first === rule.id ? narrowRule(rule, evidence, doubtAbout) : removed(rule, `it is rule ${first} again`);
    const { what, into } = change;
    const own = what === "kept" ? into : into.filter((each) => !known.has(identityOf(each)));
    for (const each of own) known.set(identityOf(each), rule.id);
    changes.push({ ...change, into: own });
  }
  return changes;
}

const removed = (rule: Rule, reason: string): RuleChange => ({ rule, what: "removed", reason, into: [] });

/** Why the nodes of a target do not prove that a rule was not used; undefined: they do. */
type Doubts = (target: Target) => string | undefined;

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
  on: Evidence["members"],
  { whyNot, begin, seenSince }: Omit<Evidence, "members">,
): string | undefined {
  if (on.length === 0) return "it has no node as its target now";
  const [first, ...more] = on.flatMap(({ id, name }) => {
    const reason = whyNot(id);
    return reason === undefined ? [] : [`${name} ${reason}`];
  });
  if (first !== undefined)
    return more.length === 0 ? first : `${first}, and ${countOf(more.length, "more node")}`;
  const seen = Math.min(...on.map(({ id }) => seenSince(id)));
  return seen > begin
    ? `its nodes report flows only since ${formatTime(seen)}, a shorter time than was asked about`
    : undefined;
}

function narrowRule(rule: Rule, evidence: Evidence, doubtAbout: Doubts): RuleChange {
  const kept = (reason: string): RuleChange => ({ rule, what: "kept", reason, into: [rule] });
  const [, mark] = keepMark.exec(rule.description) ?? [];
  if (mark !== undefined) return kept(`marked keep: ${mark}`);
  if (rule.direction === "outbound") return kept("flows say nothing of rules for outgoing traffic");
  if ("group" in rule.target && networkOfGroup(rule.target.group) !== undefined)
    return kept("a router does not tell its own flows from those of the network behind it");
  const doubt = doubtAbout(rule.target);
  if (doubt !== undefined) return kept(doubt);
  const made = evidence.madeAt(rule.id);
  if (made > evidence.begin)
    return kept(`it is as it is only since ${formatTime(made)}, a shorter time than was asked about`);
  const use = evidence.uses.get(rule.id);
  if (use === undefined) return removed(rule, "nothing used it");
  if (use.ports.has("other")) return kept("other protocols than TCP, UDP and ICMP used it");
  const parts = partsOf(rule, use);
  // What goes through a router reaches networks behind it.
  const isRouted = evidence.members.some(({ id, isRouter }) => isRouter && use.receivers.has(id));
  const peers = (use.hasUnknown ? undefined : coverOf(rule.peer, use.senders, evidence)) ?? [rule.peer];
  const receivers = (isRouted ? undefined : coverOf(rule.target, use.receivers, evidence)) ?? [rule.target];
  const whole = [rule.target];
  const narrow = [
    { peers, receivers },
    { peers, receivers: whole },
  ].find((each) => each.peers.length * each.receivers.length * parts.length <= mostParts);
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
    const own = [...(used.get(protocol) ?? [])];
    // A range cannot name packets without a port. Only a rule for all ports lets them in.
    if (own.includes(0) || (protocol === "icmp" && own.length > 0)) return [{ protocol, ports }];
    return rangesOf(own).map(([first, last]) => ({
      protocol,
      ports: first === last ? String(first) : `${first}-${last}`,
    }));
  });
}

/** At most so many ranges: the smallest gaps between used ports are closed. */
function rangesOf(used: readonly number[]) {
  const ranges = merged(used.map((port) => [port, port]));
  const steps = ranges.slice(1).map(([first], at) => first - (ranges[at]?.[1] ?? 0));
  return merged(ranges, steps.toSorted((a, b) => b - a)[mostRanges - 1]);
}

/** A few present groups in the place of `any`, that hold all of these nodes, and not every node. Undefined: there are none. */
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
    if (best === undefined || cover.length === mostGroups) return undefined;
    cover.push(best[0]);
    left = left.filter(({ groups }) => !groups.includes(best[0]));
  }
  const isWhole = members.every(({ groups }) => cover.some((group) => groups.includes(group)));
  return isWhole ? undefined : cover.map((group) => ({ group }));
}
