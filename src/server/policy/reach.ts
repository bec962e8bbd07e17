// Which packets pass from each node to each other: for nodes by class, so that an organization of 10,000 nodes takes
// hundreds of comparisons and not 100,000,000. Pure. Its results equal those of decide() in firewall.ts.

import type { Member } from "./firewall.ts";
import { portRange } from "../../api/rules.ts";
import { makeOwned, type Owners } from "./owned-pairs.ts";
import { intersect, isNothing, merged, nothing, sizeOf, subtract, type Access } from "./packets.ts";
import { makeWork, type Work } from "./comparison-limit.ts";
import {
  classify,
  laneOf,
  type Bits,
  type Lane,
  type NodeClass,
  type Profile,
  type Ready,
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
  /** The pairs of classes whose packets differ from before. */
  changes(): Generator<unknown, Change[]>;
};

export function* makeReach(
  before: State,
  after: State = before,
  work: Work = makeWork(),
): Generator<unknown, Reach> {
  const out = yield* laneOf("outbound", before.rules, after.rules);
  const into = yield* laneOf("inbound", before.rules, after.rules);
  const classes = yield* classify(out, into, before.members, after.members);
  const find = new Map<NodeClass, Ready>(classes.map((each) => [each, each]));
  const accessOf = makeAccess(out, into, work);
  const hasSelf = out.between !== undefined || into.between !== undefined;
  const owned = makeOwned(work);
  const kinds: Reach["kinds"] = (from, to) => (hasSelf ? owned.kinds(from, to) : ["any"]);
  const states = (from: Ready, to: Ready) => {
    const found = kinds(from, to).map((owners) => ({
      owners,
      was: accessOf(from.before, to.before, owners),
      is: accessOf(from.after, to.after, owners),
    }));
    const [one, other] = found;
    const isEqual = other !== undefined && one?.was === other.was && one.is === other.is;
    return one !== undefined && isEqual ? [{ ...one, owners: "any" as const }] : found;
  };
  return {
    classes,
    access(from, to, owners) {
      const [a, b] = [find.get(from), find.get(to)];
      return a === undefined || b === undefined ? nothing : accessOf(a.after, b.after, owners);
    },
    kinds,
    partners: owned.partners,
    *changes() {
      const found: Change[] = [];
      for (const from of classes) {
        work.spend(classes.length * (1 + out.changedWords + into.changedWords));
        for (const to of classes) {
          if (from === to && from.members.length < 2) continue;
          if (from.isSame && to.isSame && !isTouched(from, to, out, into)) continue;
          for (const { owners, was, is } of states(from, to)) {
            if (was === is) continue;
            const [gains, loses] = [subtract(is, was), subtract(was, is)];
            work.spend(stepsKept * 10 + sizeOf(was) + sizeOf(is));
            const pairs = owned.count(from, to, owners);
            if (!isNothing(gains) || !isNothing(loses)) found.push({ from, to, owners, pairs, gains, loses });
            yield;
          }
        }
        yield;
      }
      return found;
    },
  };
}

/** The packets that pass from one class to another. Computed once for each pair of profiles. */
function makeAccess(
  out: Lane,
  into: Lane,
  work: Work,
): (from: Profile, to: Profile, owners: Owners) => Access {
  /** By sender, then by receiver. */
  const rows: Record<Owners, Access[][]> = { any: [], same: [], different: [] };
  const known = new Map<string, Access>();
  return (from, to, owners) => {
    const row = (rows[owners][from.as.sender] ??= []);
    const found = row[to.as.receiver];
    if (found !== undefined) return found;
    const holding = (bits: Uint32Array, { between }: Lane) =>
      owners === "same" || between === undefined ? bits : commonBits(bits, between);
    const outBits = holding(commonBits(from.outTarget, to.outPeer), out);
    const inBits = holding(commonBits(to.inTarget, from.inPeer), into);
    work.spend(stepsOfAccess + countOf(outBits) + countOf(inBits));
    const computed = intersect(unionOf(out, outBits), unionOf(into, inBits));
    const text = JSON.stringify(computed);
    const access = known.get(text) ?? computed;
    // Bounds the cache's memory.
    if (access === computed) work.spend(stepsKept * text.length);
    known.set(text, access);
    return (row[to.as.receiver] = access);
  };
}

/** Steps for an access, and for each rule and range in it. */
const stepsOfAccess = 500;
const stepsOfRule = 20;
const stepsKept = 100;

function countOf(bits: Uint32Array): number {
  let count = bits.length;
  for (const word of bits) for (let rest = word; rest !== 0; rest &= rest - 1) count += stepsOfRule;
  return count;
}

/** Whether a rule that is only in one of the states concerns the two. */
function isTouched(from: Ready, to: Ready, out: Lane, into: Lane): boolean {
  return (
    didMatchChange(from, to, "outTarget", "outPeer", out.changedWords) ||
    didMatchChange(to, from, "inTarget", "inPeer", into.changedWords)
  );
}

function didMatchChange(
  self: Ready,
  peer: Ready,
  target: keyof Bits,
  other: keyof Bits,
  words: number,
): boolean {
  for (let at = 0; at < words; at++) {
    const before = (self.before[target][at] ?? 0) & (peer.before[other][at] ?? 0);
    const after = (self.after[target][at] ?? 0) & (peer.after[other][at] ?? 0);
    if (before !== after) return true;
  }
  return false;
}

function commonBits(a: Uint32Array, b: Uint32Array): Uint32Array {
  const bits = new Uint32Array(a.length);
  for (let at = 0; at < a.length; at++) bits[at] = (a[at] ?? 0) & (b[at] ?? 0);
  return bits;
}

function unionOf(lane: Lane, bits: Uint32Array): Access {
  const tcp: [number, number][] = [];
  const udp: [number, number][] = [];
  let icmp = false;
  for (const [place, word] of bits.entries()) {
    // Clears the lowest bit in each step: most bits are zero.
    for (let rest = word; rest !== 0; rest &= rest - 1) {
      const { rule } = lane.rules[place * 32 + 31 - Math.clz32(rest & -rest)] ?? {};
      const range = rule === undefined ? undefined : portRange(rule.ports);
      if (rule === undefined || range === undefined) continue;
      const [first, last] = range === "any" ? [1, 65_535] : range;
      if (rule.protocol === "tcp" || rule.protocol === "any") tcp.push([first, last]);
      if (rule.protocol === "udp" || rule.protocol === "any") udp.push([first, last]);
      // For the engine an ICMP packet has no port, so a rule with ports never covers it.
      if ((rule.protocol === "icmp" || rule.protocol === "any") && range === "any") icmp = true;
    }
  }
  return { tcp: merged(tcp), udp: merged(udp), icmp };
}
