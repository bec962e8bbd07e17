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

export const rankOf = (id: number, seed: string): string => hash("sha256", `${seed}/${id}`, "hex");

/** The ring of each node, from 1, in the order of the rings. `placed`: so many nodes have their places before these. */
export function chooseRings<C extends Candidate>(nodes: readonly C[], placed = 0): (readonly [C, number])[] {
  const ends = ringEnds(placed + nodes.length);
  return inTurn(nodes).map((node, at) => {
    const place = placed + at;
    const ring = 1 + ends.findIndex((end) => place < end);
    // A ring that waits for a node that is away proves nothing.
    return [node, node.isOnline && !node.isHub ? ring : place === 0 ? 1 : ends.length] as const;
  });
}

function inTurn<C extends Candidate>(nodes: readonly C[]): C[] {
  const ranked = nodes
    .map((node) => ({ node, key: `${Number(!node.isOnline)}${Number(node.isHub)}${node.rank}` }))
    .sort((a, b) => (a.key < b.key ? -1 : 1))
    .map(({ node }) => node);
  const [first, last] = [ranked.filter(isEarly), ranked.filter((node) => !isEarly(node))];
  const kinds = [...Map.groupBy(first, ({ kind }) => kind).values()];
  const turns: C[] = [];
  for (let turn = 0; turns.length < first.length; turn++)
    for (const kind of kinds) turns.push(...kind.slice(turn, turn + 1));
  return [...turns, ...last];
}

const isEarly = ({ isOnline, isHub }: Candidate) => isOnline && !isHub;
