// Which pairs of nodes of two classes have the same owner: rules with the peer `self` hold between these alone. Pure.

import { ownerGroupIn } from "../../protocol/users-groups.ts";
import type { Member } from "./firewall.ts";
import type { Work } from "./comparison-limit.ts";

/** Pairs of nodes, and of networks behind them: all, those with the same owner, or the others. */
export type Owners = "any" | "same" | "different";
/**
 * A class of node-classes.ts, whose members are either all nodes or all networks behind nodes. No node is in two classes of nodes.
 * Pairs have a direction: two classes make as many as the product of their sizes, less those that `pairsOfOneNode` counts.
 */
type NodeClass = { members: readonly Member[] };

const isOwned = ({ groups }: Member) => ownerGroupIn(groups) !== undefined;

/** Counts and finds pairs. Spends `work`, so it throws TooMuchWork. */
export function makeOwnedPairs(work: Work) {
  /** The members of a class by the group of their owner. */
  const known = new WeakMap<NodeClass, Map<string, Member[]>>();
  const byOwner = (nodeClass: NodeClass) =>
    known.getOrInsertComputed(nodeClass, ({ members }) =>
      Map.groupBy(members.filter(isOwned), ({ groups }) => ownerGroupIn(groups) ?? ""),
    );
  /** How many pairs to leave out: a node makes none with itself, nor with networks behind it. Only nodes that `isCounted` admits. */
  const pairsOfOneNode = (from: NodeClass, to: NodeClass, isCounted: (member: Member) => boolean) => {
    const hasNoNetworks = [from, to].every(({ members }) => members[0]?.behind === undefined);
    if (hasNoNetworks) return from === to ? from.members.filter(isCounted).length : 0;
    work.spend(from.members.length + to.members.length);
    /** How many members of `from` have a node's id: the node, or several networks behind it. */
    const counts = new Map<number, number>();
    for (const { id } of from.members.filter(isCounted)) counts.set(id, (counts.get(id) ?? 0) + 1);
    return to.members.reduce((sum, { id }) => sum + (counts.get(id) ?? 0), 0);
  };
  const countAll = (from: NodeClass, to: NodeClass) =>
    from.members.length * to.members.length - pairsOfOneNode(from, to, () => true);
  const countSame = (from: NodeClass, to: NodeClass) => {
    const [a, b] = [byOwner(from), byOwner(to)];
    const [few, many] = a.size < b.size ? [a, b] : [b, a];
    work.spend(few.size);
    let count = 0;
    for (const [owner, { length }] of few) {
      count += length * (many.get(owner)?.length ?? 0);
    }
    return count - pairsOfOneNode(from, to, isOwned);
  };
  return {
    /** How many pairs there are. */
    count(from: NodeClass, to: NodeClass, owners: Owners): number {
      if (owners === "same") return countSame(from, to);
      return owners === "any" ? countAll(from, to) : countAll(from, to) - countSame(from, to);
    },
    /** Which kinds of pairs there are. */
    kinds(from: NodeClass, to: NodeClass): Owners[] {
      const ofSameOwner = countSame(from, to);
      const kinds: Owners[] = [];
      if (ofSameOwner > 0) kinds.push("same");
      if (ofSameOwner < countAll(from, to)) kinds.push("different");
      return kinds;
    },
    /** The nodes of a class with which a node makes such pairs; it may be among them itself. */
    partners({ groups }: Member, to: NodeClass, owners: Owners): readonly Member[] {
      if (owners === "any") return to.members;
      const owner = ownerGroupIn(groups);
      const own = owner === undefined ? [] : (byOwner(to).get(owner) ?? []);
      if (owners === "same") return own;
      work.spend(to.members.length);
      return own.length === 0 ? to.members : to.members.filter((each) => ownerGroupIn(each.groups) !== owner);
    },
  };
}
