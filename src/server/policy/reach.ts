// Which packets pass from each node to each other: for nodes by class, so that an organization of 10,000 nodes takes
// hundreds of comparisons and not 100,000,000. Pure. Its results equal those of decide() in firewall.ts.

import {
  bits,
  makeNetwork,
  networksOverlap,
  parseAddress,
  parseNetwork,
  type Network,
} from "../../base/ip.ts";
import { ownerGroupIn } from "../../protocol/users-groups.ts";
import type { Member } from "./firewall.ts";
import { isSelf, portRange, type Rule } from "../../api/rules.ts";
import { makeOwned, type Owners } from "./owned-pairs.ts";
import { intersect, isNothing, merged, nothing, sizeOf, subtract, type Access } from "./packets.ts";
import { makeWork, type Work } from "./comparison-limit.ts";

/** A policy as it is, or as it would be. `members` must list the same nodes in the same order in both. */
export type State = { rules: readonly Rule[]; members: readonly Member[] };

/** Nodes that all rules treat alike. */
export type NodeClass = {
  /** The groups that rules name. */
  groups: readonly string[];
  members: readonly Member[];
};

/** Rules that have bits. Rules that are only in one of the two states come first. */
type Lane = {
  rules: readonly { rule: Rule; before: boolean; after: boolean }[];
  changedWords: number;
  /** The rules that hold between nodes with different owners: all but those with the peer `self`. Undefined: all. */
  between: Uint32Array | undefined;
};
type Bits = { outTarget: Uint32Array; outPeer: Uint32Array; inTarget: Uint32Array; inPeer: Uint32Array };
type Ready = NodeClass & { before: Profile; after: Profile; isSame: boolean };
/** `as`: the numbers of what rules say of the class as a sender and as a receiver. */
type Profile = Bits & { as: { sender: number; receiver: number } };

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

/** `identity`: rules with the same text are one rule. */
export function identityOf({
  direction,
  protocol,
  ports,
  peer,
  target,
}: Omit<Rule, "id" | "description">): string {
  return JSON.stringify([direction, protocol, ports, Object.entries(peer), Object.entries(target)]);
}

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
            work.spend(kept * 10 + sizeOf(was) + sizeOf(is));
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
      owners === "same" || between === undefined ? bits : both(bits, between);
    const outBits = holding(both(from.outTarget, to.outPeer), out);
    const inBits = holding(both(to.inTarget, from.inPeer), into);
    work.spend(computing + countOf(outBits) + countOf(inBits));
    const computed = intersect(unionOf(out, outBits), unionOf(into, inBits));
    const text = JSON.stringify(computed);
    const access = known.get(text) ?? computed;
    // Bounds the cache's memory.
    if (access === computed) work.spend(kept * text.length);
    known.set(text, access);
    return (row[to.as.receiver] = access);
  };
}

/** Steps for an access, and for each rule and range in it. */
const computing = 500;
const eachRule = 20;
const kept = 100;

function countOf(bits: Uint32Array): number {
  let count = bits.length;
  for (const word of bits) for (let rest = word; rest !== 0; rest &= rest - 1) count += eachRule;
  return count;
}

function* laneOf(
  direction: Rule["direction"],
  before: readonly Rule[],
  after: readonly Rule[],
): Generator<unknown, Lane> {
  const rules = new Map<string, { rule: Rule; before: boolean; after: boolean }>();
  for (const [state, list] of [
    ["before", before],
    ["after", after],
  ] as const) {
    for (const [at, rule] of list.entries()) {
      if (at % 100 === 0) yield;
      if (rule.direction !== direction) continue;
      const identity = identityOf(rule);
      const known = rules.get(identity) ?? { rule, before: false, after: false };
      known[state] = true;
      rules.set(identity, known);
    }
  }
  const isChanged = (each: { before: boolean; after: boolean }) => each.before !== each.after;
  const all = [...rules.values()];
  const changed = all.filter(isChanged);
  const sorted = [...changed, ...all.filter((each) => !isChanged(each))];
  const selves = sorted.flatMap(({ rule }, at) => (isSelf(rule.peer) ? [at] : []));
  const between = selves.length === 0 ? undefined : new Uint32Array(Math.ceil(sorted.length / 32)).fill(-1);
  for (const at of selves) clear(between, at);
  return { rules: sorted, changedWords: Math.ceil(changed.length / 32), between };
}

/** What rules match, as tables: each is looked up, not searched. */
type Index = {
  byGroup: Map<string, number[]>;
  byNode: Map<number, number[]>;
  any: number[];
  /** Rules for nodes with an owner: whether it is the same one depends on the pair. */
  self: number[];
  networks: [number, Network][];
};

function indexOf(lane: Lane, field: "peer" | "target"): Index {
  const index: Index = { byGroup: new Map(), byNode: new Map(), any: [], self: [], networks: [] };
  const add = <K>(map: Map<K, number[]>, key: K, at: number) => {
    const places = map.get(key);
    if (places === undefined) map.set(key, [at]);
    else places.push(at);
  };
  for (const [at, { rule }] of lane.rules.entries()) {
    const value = rule[field];
    if ("any" in value) index.any.push(at);
    else if (field === "peer" && isSelf(value)) index.self.push(at);
    else if ("group" in value) add(index.byGroup, value.group, at);
    else if ("node" in value) add(index.byNode, value.node, at);
    else {
      const network = parseNetwork(value.cidr);
      if (network !== undefined) index.networks.push([at, network]);
    }
  }
  return index;
}

function* classify(
  out: Lane,
  into: Lane,
  before: readonly Member[],
  after: readonly Member[],
): Generator<unknown, Ready[]> {
  const indexes = [
    indexOf(out, "target"),
    indexOf(out, "peer"),
    indexOf(into, "target"),
    indexOf(into, "peer"),
  ];
  yield;
  const named = new Set(indexes.flatMap(({ byGroup }) => [...byGroup.keys()]));
  const nodes = new Set(indexes.flatMap(({ byNode }) => [...byNode.keys()]));
  const networks = indexes.flatMap((index) => index.networks);
  const hasSelf = indexes.some(({ self }) => self.length > 0);
  const relevant = new Map<readonly string[], string>();
  const groupsOf = ({ groups }: Member) => {
    let text = relevant.get(groups);
    if (text === undefined) {
      text = [...new Set(groups.filter((group) => named.has(group)))].sort().join(" ");
      relevant.set(groups, text);
    }
    return text;
  };
  const found = new Map<string, Member[]>();
  const pairs = new Map<string, [Member, Member]>();
  for (const [at, now] of after.entries()) {
    const was = before[at] ?? now;
    const id = nodes.has(now.id) ? now.id : 0;
    const inside = networks.length === 0 ? "" : insideOf(now, networks);
    const owned = hasSelf && ownerGroupIn(now.groups) !== undefined;
    const behind = now.behind === undefined ? "" : `${was.behind?.isThere} ${now.behind.isThere}`;
    const key = `${groupsOf(was)}|${groupsOf(now)}|${id}|${inside}|${owned}|${behind}`;
    const known = found.get(key);
    if (known === undefined) {
      found.set(key, [now]);
      pairs.set(key, [was, now]);
    } else known.push(now);
    if (at % 100 === 0) yield;
  }
  const classes: Ready[] = [];
  const numbers = new Map<string, number>();
  const numbered = (bits: Bits): Profile => ({
    ...bits,
    as: {
      sender: numberOf(numbers, `s${bits.outTarget.join()}/${bits.inPeer.join()}`),
      receiver: numberOf(numbers, `r${bits.outPeer.join()}/${bits.inTarget.join()}`),
    },
  });
  for (const [key, members] of found) {
    const [was, now] = pairs.get(key) ?? [];
    if (was === undefined || now === undefined) continue;
    const bits = {
      before: numbered(bitsOf(was, out, into, indexes, "before")),
      after: numbered(bitsOf(now, out, into, indexes, "after")),
    };
    const isSame = groupsOf(was) === groupsOf(now) && was.behind?.isThere === now.behind?.isThere;
    classes.push({ groups: groupsOf(now).split(" ").filter(Boolean), members, ...bits, isSame });
    if (classes.length % 5 === 0) yield;
  }
  return classes;
}

function clear(bits: Uint32Array | undefined, at: number): void {
  if (bits !== undefined) bits[at >> 5] = (bits[at >> 5] ?? 0) & ~(1 << (at & 31));
}

function numberOf(numbers: Map<string, number>, text: string): number {
  const number = numbers.get(text) ?? numbers.size;
  numbers.set(text, number);
  return number;
}

function insideOf(member: Member, networks: readonly [number, Network][]): string {
  const addresses = addressesOf(member);
  return networks
    .map(([, network]) => (addresses.some((address) => networksOverlap(network, address)) ? "1" : "0"))
    .join("");
}

/** The member's addresses as networks: single addresses, or the network behind a node. */
function addressesOf({ ip, ip6, behind }: Member): Network[] {
  if (behind !== undefined) return [parseNetwork(ip) ?? []].flat();
  return [ip, ip6 ?? ""].flatMap((text) => {
    const address = parseAddress(text);
    return address === undefined ? [] : [makeNetwork(address, bits(address.family))];
  });
}

function bitsOf(
  member: Member,
  out: Lane,
  into: Lane,
  [outTarget, outPeer, inTarget, inPeer]: readonly Index[],
  state: "before" | "after",
): Bits {
  const set = (lane: Lane, index: Index | undefined) => {
    const found = new Uint32Array(Math.ceil(lane.rules.length / 32));
    if (index === undefined || member.behind?.isThere === false) return found;
    const addresses = index.networks.length === 0 ? [] : addressesOf(member);
    const matching = [
      ...index.any,
      ...(index.self.length > 0 && ownerGroupIn(member.groups) !== undefined ? index.self : []),
      ...(index.byNode.get(member.id) ?? []),
      ...[...new Set(member.groups)].flatMap((group) => index.byGroup.get(group) ?? []),
      ...index.networks.flatMap(([at, network]) =>
        addresses.some((address) => networksOverlap(network, address)) ? [at] : [],
      ),
    ];
    for (const at of matching) {
      if (lane.rules[at]?.[state] === true) found[at >> 5] = (found[at >> 5] ?? 0) | (1 << (at & 31));
    }
    return found;
  };
  return {
    outTarget: set(out, outTarget),
    outPeer: set(out, outPeer),
    inTarget: set(into, inTarget),
    inPeer: set(into, inPeer),
  };
}

/** Whether a rule that is only in one of the states concerns the two. */
function isTouched(from: Ready, to: Ready, out: Lane, into: Lane): boolean {
  return (
    meets(from, to, "outTarget", "outPeer", out.changedWords) ||
    meets(to, from, "inTarget", "inPeer", into.changedWords)
  );
}

function meets(self: Ready, peer: Ready, target: keyof Bits, other: keyof Bits, words: number): boolean {
  for (let at = 0; at < words; at++) {
    const before = (self.before[target][at] ?? 0) & (peer.before[other][at] ?? 0);
    const after = (self.after[target][at] ?? 0) & (peer.after[other][at] ?? 0);
    if (before !== after) return true;
  }
  return false;
}

function both(a: Uint32Array, b: Uint32Array): Uint32Array {
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
