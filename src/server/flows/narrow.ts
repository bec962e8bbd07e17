// Narrows rules to what was observed. Every rule that comes of it permits a part of what the former one did, and all of what was
// observed of it. Groups stay as they are, and no rule names a single node that the former one did not. Pure.

import type { Peer, Rule, Target } from "../../api/rules.ts";
import { portRange } from "../../api/rules.ts";
import { formatTime } from "../../base/quantities.ts";
import { isUsersGroup, networkOfGroup } from "../../protocol/users-groups.ts";
import type { Member } from "../policy/firewall.ts";
import { identityOf } from "../policy/node-classes.ts";
import { merged } from "../policy/packets.ts";
import type { Use } from "./rule-uses.ts";

/** What becomes of a rule. `into`: the rules in its place. */
export type RuleChange = { rule: Rule; what: "kept" | "narrowed" | "removed"; reason: string; into: Rule[] };

/** Ranges of ports of one protocol that come of one rule, and rules that come of it in all. */
const mostRanges = 5;
const mostParts = 12;
const mostGroups = 3;

/** Those who must report, for a rule to be narrowed. `whyNot`: why the reports of a node are not complete. */
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
  const taken = new Set(rules.map(identityOf));
  const targets = makeTargets(evidence);
  const changes: RuleChange[] = [];
  const first = new Map<string, number>();
  for (const rule of rules) {
    yield;
    const same = first.get(identityOf(rule));
    if (same === undefined) first.set(identityOf(rule), rule.id);
    const change =
      same === undefined ? narrowRule(rule, evidence, targets) : removed(rule, `it is rule ${same} again`);
    // The same rule twice in one file is refused. What another rule permits already needs no second one.
    const into =
      change.what === "kept" ? change.into : change.into.filter((each) => !taken.has(identityOf(each)));
    for (const each of into) taken.add(identityOf(each));
    changes.push({ ...change, into });
  }
  return changes;
}

const removed = (rule: Rule, reason: string): RuleChange => ({ rule, what: "removed", reason, into: [] });

type Targets = (target: Target) => { size: number; whyNot: string | undefined };

/** The nodes on the target side of a rule, and the first of them whose reports are not complete. */
function makeTargets({ members, whyNot, begin, seenSince }: Evidence): Targets {
  const known = new Map<string, { size: number; whyNot: string | undefined }>();
  return (target) => {
    const key = JSON.stringify(target);
    const found = known.get(key);
    if (found !== undefined) return found;
    const on = members.filter((each) => isOn(each, target));
    const reasons = on.flatMap(({ id, name }) => {
      const reason = whyNot(id);
      return reason === undefined ? [] : [`${name} ${reason}`];
    });
    const more = reasons.length > 1 ? `, and ${reasons.length - 1} more nodes` : "";
    const seen = on.reduce((first, { id }) => Math.min(first, seenSince(id)), Infinity);
    const short =
      seen > begin && seen < Infinity
        ? `its nodes report flows only since ${formatTime(seen)}, a shorter time than was asked about`
        : undefined;
    const result = { size: on.length, whyNot: reasons[0] === undefined ? short : `${reasons[0]}${more}` };
    known.set(key, result);
    return result;
  };
}

function isOn({ id, groups }: Member, target: Target): boolean {
  if ("any" in target) return true;
  return "node" in target ? target.node === id : groups.includes(target.group);
}

function narrowRule(rule: Rule, evidence: Evidence, targets: Targets): RuleChange {
  const kept = (reason: string): RuleChange => ({ rule, what: "kept", reason, into: [rule] });
  const [, mark] = keepMark.exec(rule.description) ?? [];
  if (mark !== undefined) return kept(`marked keep: ${mark}`);
  if (rule.direction === "outbound") return kept("flows say nothing of rules for outgoing traffic");
  if ("group" in rule.target && networkOfGroup(rule.target.group) !== undefined)
    return kept("a router does not tell its own flows from those of the network behind it");
  const { size, whyNot } = targets(rule.target);
  if (size === 0) return kept("it has no node as its target now");
  if (whyNot !== undefined) return kept(whyNot);
  const made = evidence.madeAt(rule.id);
  if (made > evidence.begin)
    return kept(`it is as it is only since ${formatTime(made)}, a shorter time than was asked about`);
  const use = evidence.uses.get(rule.id);
  if (use === undefined) return removed(rule, "nothing used it");
  if (use.other) return kept("other protocols than TCP, UDP and ICMP used it");
  const parts = partsOf(rule, use);
  const peers = peersOf(rule.peer, use, evidence);
  const receivers = targetsOf(rule.target, use, evidence);
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

function partsOf({ ports }: Rule, use: Use): Part[] {
  const isAll = portRange(ports) === "any" || portRange(ports) === undefined;
  const ofPorts = (name: "tcp" | "udp", used: ReadonlySet<number>): Part[] =>
    // A packet without a port, which a range cannot name.
    isAll && used.has(0)
      ? [{ protocol: name, ports }]
      : rangesOf([...used]).map(([first, last]) => ({
          protocol: name,
          ports: first === last ? String(first) : `${first}-${last}`,
        }));
  return [
    ...ofPorts("tcp", use.tcp),
    ...ofPorts("udp", use.udp),
    ...(use.icmp ? [{ protocol: "icmp" as const, ports: "any" }] : []),
  ];
}

/** At most so many ranges: the smallest gaps between used ports are closed. */
function rangesOf(used: readonly number[]): [number, number][] {
  const ranges = merged(used.map((port) => [port, port]));
  const gapBefore = (at: number) => (ranges[at]?.[0] ?? 0) - (ranges[at - 1]?.[1] ?? 0);
  const gaps = [...ranges.keys()].slice(1).sort((a, b) => gapBefore(b) - gapBefore(a) || b - a);
  const closed = new Set(gaps.slice(mostRanges - 1));
  const joined: [number, number][] = [];
  for (const [at, [first, last]] of ranges.entries()) {
    const end = joined.at(-1);
    if (end !== undefined && closed.has(at)) end[1] = last;
    else joined.push([first, last]);
  }
  return joined;
}

function peersOf(peer: Peer, use: Use, evidence: Evidence): Peer[] {
  if (!("any" in peer) || use.hasUnknown) return [peer];
  return coverOf(use.senders, evidence) ?? [peer];
}

function targetsOf(target: Target, use: Use, evidence: Evidence): Target[] {
  // What goes through a router reaches networks behind it.
  const isRouted = evidence.members.some(({ id, isRouter }) => isRouter && use.receivers.has(id));
  if (!("any" in target) || isRouted) return [target];
  return coverOf(use.receivers, evidence) ?? [target];
}

/** A few present groups that hold all of these nodes, and not every node. Undefined: there are none. */
function coverOf(ids: ReadonlySet<number>, { members }: Evidence): { group: string }[] | undefined {
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
