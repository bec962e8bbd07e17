// Who reaches whom with which packets: by a policy as it is (`before`) and as it would be (`after`). Pure. The results equal
// those of decide() in firewall.ts for each pair of nodes and each packet.
//
// Nodes that all rules treat alike are one class, so an organization of 10,000 nodes takes hundreds of comparisons and not
// 100,000,000. The rules of one direction are a lane. A class has two sets of bits for each lane, with a bit for each rule:
// the rules that have the class as their target, and those that have it as their peer. Example, first rule on the left:
//
//   outbound: 1. any packet, to any                     class web: outTarget 1, outPeer 1, inTarget 01, inPeer 11
//   inbound:  1. tcp/5432 on db, from web; 2. ICMP      class db:  outTarget 1, outPeer 1, inTarget 11, inPeer 01
//
// From web to db: outTarget(web) & outPeer(db) = 1, so web sends any packet. inTarget(db) & inPeer(web) = 11, so db accepts
// tcp/5432 and ICMP. What both permit passes: tcp/5432 and ICMP. From db to web, inTarget(web) & inPeer(db) = 01: ICMP alone.
//
// A rule with the peer `self` holds between nodes with the same owner alone, and the nodes of a class may have many owners.
// Therefore the pairs of two classes are compared by `owners`: those with the `same` owner by all rules, those with
// `different` owners without such rules. In a policy without such rules the owners are `any`.

import type { Member } from "./firewall.ts";
import { portRange } from "../../api/rules.ts";
import { makeOwnedPairs, type Owners } from "./owned-pairs.ts";
import {
  accessOf,
  intersect,
  isNothing,
  nothing,
  costOf,
  subtract,
  unionOf,
  type Access,
} from "./packets.ts";
import { makeWork, type Work } from "./comparison-limit.ts";
import {
  classify,
  common,
  laneOf,
  rulesIn,
  type Bits,
  type Lane,
  type NodeClass,
  type Profile,
  type State,
} from "./node-classes.ts";

/** `pairs`: how many pairs of nodes. */
export type Change = {
  from: NodeClass;
  to: NodeClass;
  owners: Owners;
  pairs: number;
  gains: Access;
  loses: Access;
};

export type Reach = {
  classes: readonly NodeClass[];
  /** The packets that pass between two classes afterwards. Equal results are the same object. Throws TooMuchWork. */
  access(from: NodeClass, to: NodeClass, owners: Owners): Access;
  /** The pairs of nodes between two classes, split where their packets may differ. */
  kinds(from: NodeClass, to: NodeClass): readonly Owners[];
  /** The nodes of a class with which a node makes such pairs; it may be among them itself. */
  partners(member: Member, to: NodeClass, owners: Owners): readonly Member[];
  /** The pairs of classes whose packets differ from before. Throws TooMuchWork. */
  changes(): Generator<unknown, Change[]>;
};

/** Compares in slices. Without `after` there are no changes: the policy is only read. */
export function* makeReach(
  before: State,
  after: State = before,
  work: Work = makeWork(),
): Generator<unknown, Reach> {
  const out = yield* laneOf("outbound", before.rules, after.rules);
  const into = yield* laneOf("inbound", before.rules, after.rules);
  const classes = yield* classify(out, into, before.members, after.members);
  const passing = makePassing(out, into, work);
  const owned = makeOwnedPairs(work);
  // `withoutSelf`: the bits of a lane's rules but those with the peer `self`; undefined if it has no such rule.
  const hasSelf = out.withoutSelf !== undefined || into.withoutSelf !== undefined;
  const kinds: Reach["kinds"] = (from, to) => (hasSelf ? owned.kinds(from, to) : ["any"]);

  function mayDiffer(from: NodeClass, to: NodeClass): boolean {
    if (from === to && from.members.length < 2) return false;
    return !from.isUnchanged || !to.isUnchanged || hasChangedRule(from, to, out, into);
  }

  /** The packets before and after: one entry if they do not depend on the owners. */
  function statesOf(from: NodeClass, to: NodeClass) {
    const states = kinds(from, to).map((owners) => ({
      owners,
      passedBefore: passing(from.before, to.before, owners),
      passesAfter: passing(from.after, to.after, owners),
    }));
    const [first, second] = states;
    const isEqual =
      second !== undefined &&
      first?.passedBefore === second.passedBefore &&
      first.passesAfter === second.passesAfter;
    return isEqual ? [{ ...first, owners: "any" as const }] : states;
  }

  function* changesBetween(from: NodeClass, to: NodeClass): Generator<unknown, Change[]> {
    const changes: Change[] = [];
    for (const { owners, passedBefore, passesAfter } of statesOf(from, to)) {
      // Equal accesses are one object.
      if (passedBefore === passesAfter) continue;
      const gains = subtract(passesAfter, passedBefore);
      const loses = subtract(passedBefore, passesAfter);
      work.spend(costOfDifference(passedBefore, passesAfter));
      const pairs = owned.count(from, to, owners);
      if (!isNothing(gains) || !isNothing(loses)) changes.push({ from, to, owners, pairs, gains, loses });
      yield;
    }
    return changes;
  }

  return {
    classes,
    access: (from, to, owners) => passing(from.after, to.after, owners),
    kinds,
    partners: owned.partners,
    *changes() {
      const changes: Change[] = [];
      for (const from of classes) {
        work.spend(costOfRow(classes, out, into));
        for (const to of classes) if (mayDiffer(from, to)) changes.push(...(yield* changesBetween(from, to)));
        yield;
      }
      return changes;
    },
  };
}

/**
 * Tells which packets pass from one class to another. Each pair of profiles is computed once, and equal results are one object: many
 * pairs have the same.
 */
function makePassing(
  out: Lane,
  into: Lane,
  work: Work,
): (from: Profile, to: Profile, owners: Owners) => Access {
  /** By the number of the sender, then by that of the receiver. */
  const computed: Record<Owners, Access[][]> = { any: [], same: [], different: [] };
  /** The results by their JSON, so that equal ones are one object. */
  const byText = new Map<string, Access>();
  const [ofOutRules, ofInRules] = [packetsOf(out), packetsOf(into)];
  return (from, to, owners) => {
    const bySender = (computed[owners][from.numbers.sender] ??= []);
    const found = bySender[to.numbers.receiver];
    if (found !== undefined) return found;
    const isSameOwner = owners === "same";
    const sending = common(from.outTarget, to.outPeer, isSameOwner ? undefined : out.withoutSelf);
    const accepting = common(to.inTarget, from.inPeer, isSameOwner ? undefined : into.withoutSelf);
    const [sends, accepts] = [rulesIn(sending), rulesIn(accepting)];
    work.spend(costOfAccess(sending.length + accepting.length, sends.length + accepts.length));
    const access = intersect(
      unionOf(sends.map((rule) => ofOutRules[rule] ?? nothing)),
      unionOf(accepts.map((rule) => ofInRules[rule] ?? nothing)),
    );
    const text = JSON.stringify(access);
    const known = byText.get(text);
    if (known === undefined) {
      work.spend(stepsKept * text.length);
      byText.set(text, access);
    }
    return (bySender[to.numbers.receiver] = known ?? access);
  };
}

/** What each rule of a lane covers. A rule whose ports cannot be read permits nothing. */
function packetsOf({ rules }: Lane): Access[] {
  return rules.map(({ rule: { protocol, ports } }) =>
    portRange(ports) === undefined ? nothing : accessOf(protocol, ports),
  );
}

/** Whether a rule that only one of the two policies has concerns the two classes. */
function hasChangedRule(from: NodeClass, to: NodeClass, out: Lane, into: Lane): boolean {
  return (
    didMatchChange(from, "outTarget", to, "outPeer", out.changedWords) ||
    didMatchChange(to, "inTarget", from, "inPeer", into.changedWords)
  );
}

function didMatchChange(
  self: NodeClass,
  target: keyof Bits,
  other: NodeClass,
  peer: keyof Bits,
  words: number,
): boolean {
  for (let word = 0; word < words; word++) {
    const before = (self.before[target][word] ?? 0) & (other.before[peer][word] ?? 0);
    const after = (self.after[target][word] ?? 0) & (other.after[peer][word] ?? 0);
    if (before !== after) return true;
  }
  return false;
}

// Costs, in steps of comparison-limit.ts: about ten nanoseconds each. They only have to be of the right size.

const costOfRow = (classes: readonly NodeClass[], out: Lane, into: Lane) =>
  classes.length * (1 + out.changedWords + into.changedWords);

const costOfDifference = (one: Access, other: Access) => stepsKept * 10 + costOf(one) + costOf(other);

const costOfAccess = (words: number, rules: number) => 500 + words + 20 * rules;

/** For each character or record that is kept: it bounds the memory. */
const stepsKept = 100;
