// Nodes by class: those that all rules treat alike, with the rules that concern them as bits. Pure.

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
import { isSelf, type Rule } from "../../api/rules.ts";

/** A policy as it is, or as it would be. `members` must list the same nodes in the same order in both. */
export type State = { rules: readonly Rule[]; members: readonly Member[] };

/** Nodes that all rules treat alike. */
export type NodeClass = {
  /** The groups that rules name. */
  groups: readonly string[];
  members: readonly Member[];
};

/** Rules that have bits. Rules that are only in one of the two states come first. */
export type Lane = {
  rules: readonly { rule: Rule; before: boolean; after: boolean }[];
  changedWords: number;
  /** The rules that hold between nodes with different owners: all but those with the peer `self`. Undefined: all. */
  between: Uint32Array | undefined;
};
export type Bits = {
  outTarget: Uint32Array;
  outPeer: Uint32Array;
  inTarget: Uint32Array;
  inPeer: Uint32Array;
};
export type Ready = NodeClass & { before: Profile; after: Profile; isSame: boolean };
/** `as`: the numbers of what rules say of the class as a sender and as a receiver. */
export type Profile = Bits & { as: { sender: number; receiver: number } };

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

export function* laneOf(
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
  for (const at of selves) clearBit(between, at);
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

export function* classify(
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

function clearBit(bits: Uint32Array | undefined, at: number): void {
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
