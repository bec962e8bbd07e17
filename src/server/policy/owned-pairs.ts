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

export function makeOwned(work: Work) {
  /** The members of a class by the group of their owner. */
  const known = new WeakMap<NodeClass, Map<string, Member[]>>();
  const byOwner = (of: NodeClass): Map<string, Member[]> => {
    let found = known.get(of);
    if (found !== undefined) return found;
    found = new Map();
    for (const member of of.members) {
      const owner = ownerGroupIn(member.groups);
      if (owner === undefined) continue;
      const own = found.get(owner);
      if (own === undefined) found.set(owner, [member]);
      else own.push(member);
    }
    known.set(of, found);
    return found;
  };
  /** How many pairs to leave out: a node makes none with itself, nor with networks behind it. `isOwned`: only nodes with an owner. */
  const pairsOfOneNode = (from: NodeClass, to: NodeClass, isOwned: boolean) => {
    const isCounted = ({ groups }: Member) => !isOwned || ownerGroupIn(groups) !== undefined;
    const isPlain = [from, to].every(({ members }) => members[0]?.behind === undefined);
    if (isPlain) return from === to ? from.members.filter(isCounted).length : 0;
    work.spend(from.members.length + to.members.length);
    const ids = new Map<number, number>();
    for (const { id } of from.members.filter(isCounted)) ids.set(id, (ids.get(id) ?? 0) + 1);
    return to.members.reduce((sum, { id }) => sum + (ids.get(id) ?? 0), 0);
  };
  const all = (from: NodeClass, to: NodeClass) =>
    from.members.length * to.members.length - pairsOfOneNode(from, to, false);
  const same = (from: NodeClass, to: NodeClass) => {
    const [a, b] = [byOwner(from), byOwner(to)];
    const [few, many] = a.size < b.size ? [a, b] : [b, a];
    work.spend(few.size);
    let count = 0;
    for (const [owner, { length }] of few) {
      count += length * (many.get(owner)?.length ?? 0);
    }
    return count - pairsOfOneNode(from, to, true);
  };
  return {
    /** How many pairs there are. */
    count(from: NodeClass, to: NodeClass, owners: Owners): number {
      if (owners === "any") return all(from, to);
      return owners === "same" ? same(from, to) : all(from, to) - same(from, to);
    },
    /** Which kinds of pairs there are. */
    kinds(from: NodeClass, to: NodeClass): Owners[] {
      const own = same(from, to);
      return [
        ...(own > 0 ? (["same"] as const) : []),
        ...(own < all(from, to) ? (["different"] as const) : []),
      ];
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
