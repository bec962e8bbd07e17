// Which names a node sees: its own, and those of the nodes that it may reach or be reached by. Nodes to which the same
// rules apply are one class, so the rules are compared for each pair of classes, not of nodes. "Place" means here the index of a
// rule in its list. Pure.

import { hash } from "node:crypto";
import { parseAddress } from "../../base/ip.ts";
import { ownerGroupIn, selfGroup } from "../../protocol/users-groups.ts";
import { overlap, permits, type Member, type TestableRules } from "../policy/firewall.ts";
import { isSelf, type Peer } from "../../api/rules.ts";

type Direction = keyof TestableRules;
type Places = Record<Direction, readonly number[]>;

/** Nodes to which the same rules apply. */
export type NamesClass = {
  key: string;
  /** The rules that these nodes have, and the rules that let them through as peers, by their places in the list. */
  targets: Places;
  peers: Record<Direction, ReadonlySet<number>>;
  /** The group of the owner, if rules are about nodes with the same one. */
  owner: string | undefined;
  /** Nodes with an equal view see the same nodes, now and at any time. */
  view: string;
};

export type Visibility = {
  /** Every node sees all nodes. */
  toAll: boolean;
  /** A digest of the rules. */
  digest(): string;
  classOf(member: Member): NamesClass;
  sees(one: NamesClass, other: NamesClass): boolean;
};

/** The view of a node that sees all present and future nodes. */
export const everything = "all";

/** Compared pairs of classes in memory. With more, all are forgotten, and compared again. */
const maxPairs = 200_000;

export function makeVisibility(rules: TestableRules, toAll: boolean): Visibility {
  const classes = new Map<string, NamesClass>();
  const pairs = new Map<NamesClass, Map<NamesClass, boolean>>();
  let pairCount = 0;
  const overlaps = overlapsOf(rules);
  const sides = sidesOf(rules);
  const selves = selvesOf(rules);
  const findPlaces = placesOf(rules);

  const sees = (one: NamesClass, other: NamesClass): boolean => {
    if (toAll) return true;
    const row = pairs.get(one) ?? new Map<NamesClass, boolean>();
    const compared = row.get(other);
    if (compared !== undefined) return compared;
    const isSeen = reaches(overlaps, selves, one, other) || reaches(overlaps, selves, other, one);
    if (++pairCount > maxPairs) {
      pairs.clear();
      pairCount = 0;
    }
    pairs.set(one, row.set(other, isSeen));
    return isSeen;
  };
  /** The class of a node without groups, set by the first call of `makeClass`. */
  let bareClass: NamesClass | undefined;
  const makeClass = (
    key: string,
    places: { targets: Places; peers: Places },
    owner: string | undefined,
  ): NamesClass => {
    const { inbound, outbound } = places.peers;
    const peers = { inbound: new Set(inbound), outbound: new Set(outbound) };
    const nodeClass = { key, targets: places.targets, peers, owner, view: everything };
    // Rules only permit. So a node that sees a node without groups, to which the fewest rules apply, sees every node.
    bareClass ??= nodeClass;
    if (toAll || sees(nodeClass, bareClass)) return nodeClass;
    const digest = hash("sha256", JSON.stringify(seenSides(sides, overlaps, nodeClass)), "hex");
    nodeClass.view = `rules-${digest.slice(0, 16)}`;
    return nodeClass;
  };
  const classOf = (member: Member): NamesClass => {
    const places = findPlaces(member);
    const hasSelf = selves.inbound.size + selves.outbound.size > 0;
    const owner = hasSelf ? ownerGroupIn(member.groups) : undefined;
    const key = JSON.stringify(owner === undefined ? places : [places, owner]);
    return classes.getOrInsertComputed(key, () => makeClass(key, places, owner));
  };
  // Sets `bareClass`.
  classOf({ id: 0, name: "", ip: "", ip6: null, groups: [] });
  let digest: string | undefined;
  return { toAll, digest: () => (digest ??= digestOf(rules)), classOf, sees };
}

/** Without ids and descriptions, which change nothing that a node sees. */
function digestOf({ inbound, outbound }: TestableRules): string {
  const parts = [inbound, outbound].map((list) =>
    list.map(({ protocol, ports, peer, target }) => [protocol, ports, peer, target]),
  );
  return hash("sha256", JSON.stringify(parts), "hex").slice(0, 16);
}

type Side = "target" | "peer";

/**
 * The places of a node in the rules, found by its groups and id, because an organization has thousands of nodes and
 * rules.
 */
function placesOf(rules: TestableRules): (member: Member) => { targets: Places; peers: Places } {
  const lists = (side: Side) => ({
    inbound: placesIn(rules.inbound, side),
    outbound: placesIn(rules.outbound, side),
  });
  const [targets, peers] = [lists("target"), lists("peer")];
  return (member) => {
    const addresses = [member.ip, member.ip6 ?? ""].flatMap((text) => parseAddress(text) ?? []);
    const both = ({ inbound, outbound }: typeof targets): Places => ({
      inbound: inbound(member, addresses),
      outbound: outbound(member, addresses),
    });
    return { targets: both(targets), peers: both(peers) };
  };
}

type Addresses = Parameters<typeof permits>[3];

/** The places of the rules whose target, or whose peer, includes a node, in ascending order. */
function placesIn(
  list: TestableRules[Direction],
  side: Side,
): (member: Member, addresses: Addresses) => number[] {
  /** By the group or the node that the side names. */
  const named = new Map<string | number, number[]>();
  /** Networks, `self`, and every node: compared one by one. */
  const unnamed: number[] = [];
  for (const [at, rule] of list.entries()) {
    const key = keyOf(rule[side]);
    if (key === undefined) unnamed.push(at);
    else named.getOrInsertComputed(key, () => []).push(at);
  }
  return (member, addresses) => {
    const byName = [member.id, ...new Set(member.groups)].flatMap((key) => named.get(key) ?? []);
    const compared = unnamed.filter((at) => {
      const rule = list[at];
      return rule !== undefined && permits(rule, side, member, addresses);
    });
    return [...byName, ...compared].sort((a, b) => a - b);
  };
}

/** The group or the node that a side of a rule names. Undefined: the side is found by comparison. */
function keyOf(side: Peer): string | number | undefined {
  if ("node" in side) return side.node;
  return "group" in side && side.group !== selfGroup ? side.group : undefined;
}

/** Whether an outbound and an inbound rule, by their places, have a packet in common. */
type Overlaps = (outbound: number, inbound: number) => boolean;

/** Remembers each pair, because all classes ask for the same ones: 0 is not compared yet, 1 and -1 are yes and no. */
function overlapsOf({ outbound, inbound }: TestableRules): Overlaps {
  const known = new Int8Array(outbound.length * inbound.length);
  return (out, into) => {
    const at = out * inbound.length + into;
    const [sending, receiving] = [outbound[out], inbound[into]];
    if (sending === undefined || receiving === undefined) return false;
    if (known[at] === 0) known[at] = overlap(sending, receiving) ? 1 : -1;
    return known[at] === 1;
  };
}

/** The rules whose peers are the nodes with the same owner. */
type Selves = Record<Direction, ReadonlySet<number>>;

/** By direction, the places of the rules whose peer is `self`. */
function selvesOf(rules: TestableRules): Selves {
  const find = (direction: Direction) =>
    new Set(rules[direction].flatMap(({ peer }, at) => (isSelf(peer) ? [at] : [])));
  return { inbound: find("inbound"), outbound: find("outbound") };
}

/** Whether any packet of `from` may open a flow to `to`. */
function reaches(overlaps: Overlaps, selves: Selves, from: NamesClass, to: NamesClass): boolean {
  const isOwn = from.owner !== undefined && from.owner === to.owner;
  // A rule whose peer is `self` applies to nodes of the same owner alone.
  const applies = (direction: Direction, at: number) => isOwn || !selves[direction].has(at);
  const into = to.targets.inbound.filter((at) => from.peers.inbound.has(at) && applies("inbound", at));
  if (into.length === 0) return false;
  return from.targets.outbound.some(
    (out) => to.peers.outbound.has(out) && applies("outbound", out) && into.some((at) => overlaps(out, at)),
  );
}

/**
 * The conditions under which this class sees a node, as texts: a node must match all rule sides of at least one text, one side a
 * line. Each comes from an outbound and an inbound rule with a packet in common. A changed port, or a rule about other classes,
 * changes nothing here, so nodes keep their lists of names.
 */
function seenSides(
  { inbound, outbound }: Sides,
  overlaps: Overlaps,
  { targets, peers, owner }: NamesClass,
): string[] {
  const found = new Set<string>();
  const ownerSide = owner === undefined ? undefined : JSON.stringify({ group: owner });
  /** `self` on either end means: of this owner. Without one, the rule permits nothing. */
  const isVain = (side: string | undefined) => side === selfSide && ownerSide === undefined;
  const sideOf = (side: string | undefined) => (side === selfSide ? ownerSide : side);
  const add = (...sides: (string | undefined)[]) => {
    const named = sides.flatMap((side) => (side === undefined || side === anySide ? [] : [side]));
    found.add([...new Set(named)].sort().join("\n"));
  };
  /**
   * `mine`: the rule that this class has. `theirs`: the one that the other node has, which lets this class through; with the peer
   * `self` only if this class has an owner.
   */
  const addPair = (mine: RuleSides | undefined, theirs: RuleSides | undefined) => {
    if (isVain(mine?.peer)) return;
    add(sideOf(mine?.peer), theirs?.target, theirs?.peer === selfSide ? ownerSide : undefined);
  };
  for (const out of targets.outbound)
    for (const into of peers.inbound) if (overlaps(out, into)) addPair(outbound[out], inbound[into]);
  for (const into of targets.inbound)
    for (const out of peers.outbound) if (overlaps(out, into)) addPair(inbound[into], outbound[out]);
  // A list with one side makes longer lists that contain this side redundant.
  const isNeeded = (list: string) => {
    const sides = list.split("\n");
    return sides.length === 1 || !sides.some((side) => found.has(side));
  };
  return [...found].filter(isNeeded).sort();
}

/** The sides of a rule as texts, which are equal if the sides are. */
type RuleSides = { peer: string; target: string };
type Sides = Record<Direction, readonly RuleSides[]>;

function sidesOf({ inbound, outbound }: TestableRules): Sides {
  const textsOf = ({ peer, target }: TestableRules[Direction][number]) => ({
    peer: JSON.stringify(peer),
    target: JSON.stringify(target),
  });
  return { inbound: inbound.map(textsOf), outbound: outbound.map(textsOf) };
}

const selfSide = JSON.stringify({ group: selfGroup });
const anySide = JSON.stringify({ any: true });
