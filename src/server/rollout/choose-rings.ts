// Divides nodes into rings: one node, 5 %, 25 %, all. Pure. The same nodes and seed give the same rings. Each ring takes from
// all kinds of nodes in turn, so that a fault of one engine, system or network shows early.

import { hash } from "node:crypto";
import { ringEnds } from "../../protocol/updates/rings.ts";

export type Candidate = {
  id: number;
  /** Orders nodes of one kind. */
  rank: string;
  isOnline: boolean;
  /** Lighthouses, relays, routers and exits are last: others depend on them. */
  isHub: boolean;
  /** Engine, system, and whether it is behind a NAT. */
  kind: string;
};

/** Random, but the same for the same seed. */
export const rankOf = (id: number, seed: string): string => hash("sha256", `${seed}/${id}`, "hex");

/** A node and its ring, from 1. */
export type Placed<C> = readonly [node: C, ring: number];

/** In the order of the rings. `placed`: how many nodes of the rollout have their rings already, before these. */
export function chooseRings<C extends Candidate>(nodes: readonly C[], placed = 0): Placed<C>[] {
  const ends = ringEnds(placed + nodes.length);
  const lastRing = ends.length;
  return inTurnOfKinds(nodes).map((node, index) => {
    const place = placed + index;
    // The first ring has one node in any case. Otherwise hubs go last, and so do nodes that are away: they prove nothing.
    const isLast = !isEarly(node) && place > 0;
    return [node, isLast ? lastRing : 1 + ends.findIndex((end) => place < end)];
  });
}

/** First those that are online and no hubs, one of each kind in turn; then the others. */
function inTurnOfKinds<C extends Candidate>(nodes: readonly C[]): C[] {
  const ranked = nodes
    .map((node) => ({ node, key: `${Number(!node.isOnline)}${Number(node.isHub)}${node.rank}` }))
    .sort((a, b) => (a.key < b.key ? -1 : 1))
    .map(({ node }) => node);
  const early = ranked.filter(isEarly);
  const nodesByKind = [...Map.groupBy(early, ({ kind }) => kind).values()];
  const ordered: C[] = [];
  for (let turn = 0; ordered.length < early.length; turn++)
    for (const ofKind of nodesByKind) ordered.push(...ofKind.slice(turn, turn + 1));
  return [...ordered, ...ranked.filter((node) => !isEarly(node))];
}

const isEarly = ({ isOnline, isHub }: Candidate) => isOnline && !isHub;
