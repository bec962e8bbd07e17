// Nodes by class: those that all rules treat alike, with the rules that concern them as bits. Pure.

import {
  addressBits,
  makeNetwork,
  networksOverlap,
  parseAddress,
  parseNetwork,
  type Network,
} from "../../base/ip.ts";
import { ownerGroupIn } from "../../protocol/users-groups.ts";
import type { Member } from "./firewall.ts";
import { isSelf, type Rule } from "../../api/rules.ts";

/** A policy as it is, or as it would be. `members` must list the same nodes in the same order in both. */
export type State = { rules: readonly Rule[]; members: readonly Member[] };

/** Nodes that all rules treat alike, with the rules that concern them in both states. */
export type NodeClass = {
  /** The groups that rules name. */
  groups: readonly string[];
  members: readonly Member[];
  before: Profile;
  after: Profile;
  /** The nodes have the same groups in both states, and what is behind them is in both or in none. */
  isUnchanged: boolean;
};

/** A rule, and in which states the policy has it. */
type LaneRule = { rule: Rule; before: boolean; after: boolean };

/** The rules of one direction. A rule's place in the list is the number of its bit. */
export type Lane = {
  /** Those that only one state has come first. */
  rules: readonly LaneRule[];
  /** How many words of 32 bits hold the rules that only one state has. */
  changedWords: number;
  /** The rules that hold between nodes with different owners: all but those with the peer `self`. Undefined: all. */
  withoutSelf: Uint32Array | undefined;
};

/** The rules that have a class as their target, and those that have it as their peer, by the rules' direction. */
export type Bits = {
  outTarget: Uint32Array;
  outPeer: Uint32Array;
  inTarget: Uint32Array;
  inPeer: Uint32Array;
};

/**
 * `numbers`: classes with the same number send, or receive, by the same rules. The sender is the target of an outbound rule and the
 * peer of an inbound one; the receiver is the other of the two.
 */
export type Profile = Bits & { numbers: { sender: number; receiver: number } };

/** Rules with the same text are one rule. */
export function identityOf({
  direction,
  protocol,
  ports,
  peer,
  target,
}: Omit<Rule, "id" | "description">): string {
  return JSON.stringify([direction, protocol, ports, Object.entries(peer), Object.entries(target)]);
}

/** Equal rules of both states become one. Works in slices: at each `yield`, other requests may get their chance. */
export function* laneOf(
  direction: Rule["direction"],
  before: readonly Rule[],
  after: readonly Rule[],
): Generator<unknown, Lane> {
  const byIdentity = new Map<string, LaneRule>();
  const states = { before, after };
  for (const state of ["before", "after"] as const)
    for (const [at, rule] of states[state].entries()) {
      if (at % 100 === 0) yield;
      if (rule.direction !== direction) continue;
      const inNeither = () => ({ rule, before: false, after: false });
      byIdentity.getOrInsertComputed(identityOf(rule), inNeither)[state] = true;
    }
  const all = [...byIdentity.values()];
  const ofOneState = all.filter((each) => each.before !== each.after);
  const rules = [...ofOneState, ...all.filter((each) => each.before === each.after)];
  const changedWords = Math.ceil(ofOneState.length / 32);
  if (!rules.some(({ rule }) => isSelf(rule.peer))) return { rules, changedWords, withoutSelf: undefined };
  const withoutSelf = makeBits(rules.length);
  for (const [at, { rule }] of rules.entries()) if (!isSelf(rule.peer)) setBit(withoutSelf, at);
  return { rules, changedWords, withoutSelf };
}

/** The places of rules in their lane, by what they match, so that the rules of a node are looked up and not searched. */
type Index = {
  byGroup: Map<string, number[]>;
  byNode: Map<number, number[]>;
  any: number[];
  /** Rules for nodes with an owner: whether it is the same one depends on the pair. */
  self: number[];
  networks: { at: number; network: Network }[];
};

function indexOf(lane: Lane, field: "peer" | "target"): Index {
  const index: Index = { byGroup: new Map(), byNode: new Map(), any: [], self: [], networks: [] };
  const add = <K>(map: Map<K, number[]>, key: K, at: number) =>
    map.getOrInsertComputed(key, () => []).push(at);
  for (const [at, { rule }] of lane.rules.entries()) {
    const value = rule[field];
    if ("any" in value) index.any.push(at);
    else if (field === "peer" && isSelf(value)) index.self.push(at);
    else if ("group" in value) add(index.byGroup, value.group, at);
    else if ("node" in value) add(index.byNode, value.node, at);
    else {
      const network = parseNetwork(value.cidr);
      if (network !== undefined) index.networks.push({ at, network });
    }
  }
  return index;
}

/** A node as it is in each of the two states. */
type BothStates = { before: Member; after: Member };

/** The classes of nodes. Works in slices. */
export function* classify(
  out: Lane,
  into: Lane,
  membersBefore: readonly Member[],
  membersAfter: readonly Member[],
): Generator<unknown, NodeClass[]> {
  const indexes: Indexes = {
    outTarget: indexOf(out, "target"),
    outPeer: indexOf(out, "peer"),
    inTarget: indexOf(into, "target"),
    inPeer: indexOf(into, "peer"),
  };
  yield;
  const groupsOf = groupsInRules(indexes);
  const keyOf = makeClassKey(indexes, groupsOf);
  /** By class key: the first node of the class, for all its nodes, and the members of the class. */
  const found = new Map<string, { first: BothStates; members: Member[] }>();
  for (const [at, after] of membersAfter.entries()) {
    const node = { before: membersBefore[at] ?? after, after };
    found.getOrInsertComputed(keyOf(node), () => ({ first: node, members: [] })).members.push(after);
    if (at % 100 === 0) yield;
  }
  const classes: NodeClass[] = [];
  const profileOf = makeProfiles(out, into, indexes);
  for (const { first, members } of found.values()) {
    const { before, after } = first;
    const groups = groupsOf(after);
    classes.push({
      groups: groups.split(" ").filter(Boolean),
      members,
      before: profileOf(before, "before"),
      after: profileOf(after, "after"),
      isUnchanged: groupsOf(before) === groups && before.behind?.isThere === after.behind?.isThere,
    });
    if (classes.length % 5 === 0) yield;
  }
  return classes;
}

type Indexes = Record<keyof Bits, Index>;

/** The groups of a node that rules name, sorted, as one text. Nodes share lists of groups, so each list is read once. */
function groupsInRules(indexes: Indexes): (member: Member) => string {
  const named = new Set(Object.values(indexes).flatMap(({ byGroup }) => [...byGroup.keys()]));
  const known = new Map<readonly string[], string>();
  const textOf = (groups: readonly string[]) =>
    [...new Set(groups.filter((group) => named.has(group)))].sort().join(" ");
  return ({ groups }) => known.getOrInsertComputed(groups, textOf);
}

/** Nodes with the same key are one class: it holds everything that rules can tell nodes apart by. */
function makeClassKey(indexes: Indexes, groupsOf: (member: Member) => string): (node: BothStates) => string {
  const all = Object.values(indexes);
  const nodes = new Set(all.flatMap(({ byNode }) => [...byNode.keys()]));
  const networks = all.flatMap((index) => index.networks);
  const hasSelf = all.some(({ self }) => self.length > 0);
  return ({ before, after }) => {
    // No node has the id 0.
    const id = nodes.has(after.id) ? after.id : 0;
    const inside = networks.length === 0 ? "" : insideOf(after, networks);
    const isOwned = hasSelf && ownerGroupIn(after.groups) !== undefined;
    const behind = after.behind === undefined ? "" : `${before.behind?.isThere} ${after.behind.isThere}`;
    return `${groupsOf(before)}|${groupsOf(after)}|${id}|${inside}|${isOwned}|${behind}`;
  };
}

function makeProfiles(
  out: Lane,
  into: Lane,
  indexes: Indexes,
): (member: Member, state: "before" | "after") => Profile {
  const numbers = new Map<string, number>();
  /** The same number for the same text. */
  const numberOf = (text: string) => numbers.getOrInsert(text, numbers.size);
  return (member, state) => {
    const bits = {
      outTarget: bitsOf(member, out, indexes.outTarget, state),
      outPeer: bitsOf(member, out, indexes.outPeer, state),
      inTarget: bitsOf(member, into, indexes.inTarget, state),
      inPeer: bitsOf(member, into, indexes.inPeer, state),
    };
    const sender = numberOf(`s${bits.outTarget.join()}/${bits.inPeer.join()}`);
    const receiver = numberOf(`r${bits.outPeer.join()}/${bits.inTarget.join()}`);
    return { ...bits, numbers: { sender, receiver } };
  };
}

/** A digit for each network: `1` if an address of the node is in it. */
function insideOf(member: Member, networks: Index["networks"]): string {
  const addresses = addressesOf(member);
  return networks
    .map(({ network }) => (addresses.some((address) => networksOverlap(network, address)) ? "1" : "0"))
    .join("");
}

/** The member's addresses as networks: single addresses, or the network behind a node. */
function addressesOf({ ip, ip6, behind }: Member): Network[] {
  if (behind !== undefined) {
    const network = parseNetwork(ip);
    return network === undefined ? [] : [network];
  }
  return [ip, ip6 ?? ""].flatMap((text) => {
    const address = parseAddress(text);
    return address === undefined ? [] : [makeNetwork(address, addressBits(address.family))];
  });
}

/** The rules that an index finds for a node, as bits. A network behind a node matches none in a state without it. */
function bitsOf(member: Member, lane: Lane, index: Index, state: "before" | "after"): Uint32Array {
  const found = makeBits(lane.rules.length);
  if (member.behind?.isThere === false) return found;
  const addresses = index.networks.length === 0 ? [] : addressesOf(member);
  const matching = [
    ...index.any,
    ...(index.self.length > 0 && ownerGroupIn(member.groups) !== undefined ? index.self : []),
    ...(index.byNode.get(member.id) ?? []),
    ...[...new Set(member.groups)].flatMap((group) => index.byGroup.get(group) ?? []),
    ...index.networks.flatMap(({ at, network }) =>
      addresses.some((address) => networksOverlap(network, address)) ? [at] : [],
    ),
  ];
  for (const at of matching) if (lane.rules[at]?.[state] === true) setBit(found, at);
  return found;
}

// Bits: a rule's place in its lane is the number of its bit, 32 in a word.

const makeBits = (count: number) => new Uint32Array(Math.ceil(count / 32));

function setBit(bits: Uint32Array, at: number): void {
  bits[at >> 5] = (bits[at >> 5] ?? 0) | (1 << (at & 31));
}

/** The rules that are in both, and in `mask` if there is one. -1 has all 32 bits. */
export function common(a: Uint32Array, b: Uint32Array, mask?: Uint32Array): Uint32Array {
  return a.map((word, at) => word & (b[at] ?? 0) & (mask?.[at] ?? -1));
}

/** The places of these rules in their lane. Clears the lowest bit in each step, because most bits are zero. */
export function rulesIn(bits: Uint32Array): number[] {
  const places: number[] = [];
  for (const [word, value] of bits.entries())
    for (let rest = value; rest !== 0; rest &= rest - 1)
      places.push(word * 32 + 31 - Math.clz32(rest & -rest));
  return places;
}
