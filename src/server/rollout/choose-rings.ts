// Divides nodes into rings: one node, 5 %, 25 %, all. Pure. The same nodes and seed give the same rings. Each ring takes from
// all kinds of nodes in turn, so that a fault of one engine, system or network shows early.

import { hash } from "node:crypto";

export type Candidate = {
  id: number;
  isOnline: boolean;
  /** Lighthouses, relays, routers and exits are last: others depend on them. */
  isHub: boolean;
  /** Engine, system, and whether it is behind a NAT. */
  kind: string;
};

/** How many nodes the first rings end at; the last ring has all. */
const endsOf = (count: number): number[] => {
  const ends = [1, Math.ceil(count * 0.05), Math.ceil(count * 0.25), count];
  // A small organization has fewer rings.
  return ends.filter((end, at) => end > (ends[at - 1] ?? 0));
};

/** The ring of each node, from 1. */
export function chooseRings(nodes: readonly Candidate[], seed: string): Map<number, number> {
  const ordered = inTurn(nodes, seed);
  const ends = endsOf(nodes.length);
  return new Map(
    ordered.map(({ id, isOnline, isHub }, at) => {
      const ring = 1 + ends.findIndex((end) => at < end);
      // A ring that waits for a node that is away proves nothing.
      return [id, isOnline && !isHub ? ring : at === 0 ? 1 : ends.length];
    }),
  );
}

function inTurn(nodes: readonly Candidate[], seed: string): Candidate[] {
  const rank = (id: number) => hash("sha256", `${seed}/${id}`, "hex");
  const ranked = nodes
    .map((node) => ({ node, key: `${Number(!node.isOnline)}${Number(node.isHub)}${rank(node.id)}` }))
    .sort((a, b) => (a.key < b.key ? -1 : 1))
    .map(({ node }) => node);
  const [first, last] = [ranked.filter(isEarly), ranked.filter((node) => !isEarly(node))];
  const kinds = [...Map.groupBy(first, ({ kind }) => kind).values()];
  const turns: Candidate[] = [];
  for (let turn = 0; turns.length < first.length; turn++)
    for (const kind of kinds) turns.push(...kind.slice(turn, turn + 1));
  return [...turns, ...last];
}

const isEarly = ({ isOnline, isHub }: Candidate) => isOnline && !isHub;
