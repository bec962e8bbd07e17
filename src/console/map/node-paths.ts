// The paths between nodes, from the list of what they report: one edge for each pair. Pure.

import type { ListedNode } from "../nodes/listed-nodes.ts";
import type { ReportedPath } from "../node/peer-path.ts";

/** How a node reaches a peer, as GET paths/ shows it. */
export type Path = ReportedPath & { node: number };

export type EdgeKind = "direct" | "relayed" | "broken";
export type Edge = {
  from: number;
  to: number;
  kind: EdgeKind;
  /** The round trip, ms: the longer one, if both ends report it. */
  rttMs: number | undefined;
  relays: readonly string[];
  /**
   * Undefined: the path is current. Otherwise it is old, and this is when it was reported (ms since 1970). A path is old if the
   * node that reports it is away, if its relays are, or if it is broken and the peer is away.
   */
  oldAt?: number | undefined;
};

type End = Pick<ListedNode, "id" | "online">;

/** The worse, the higher. */
export const rank: Readonly<Record<EdgeKind, number>> = { direct: 0, relayed: 1, broken: 2 };
const larger = (a: number | undefined, b: number | undefined) =>
  a === undefined || b === undefined ? (a ?? b) : Math.max(a, b);

/**
 * One edge for each pair of active nodes. If both ends report a path, the worse counts. A report without a tunnel (`none`, `unknown`)
 * makes no edge, unless the peer does not answer.
 */
export function edgesOf(paths: readonly Path[], active: readonly End[]): Edge[] {
  const byId = new Map(active.map((node) => [node.id, node]));
  const edges = new Map<string, Edge>();
  for (const { node, peer, path, probe, relays, relays_away, rtt_ms, reported_at } of paths) {
    const reporter = byId.get(node);
    const other = byId.get(peer ?? 0);
    if (peer === null || reporter === undefined || other === undefined) continue;
    const kind: EdgeKind | "none" | "unknown" = probe === "broken" ? "broken" : path;
    if (kind === "none" || kind === "unknown") continue;
    const isOld = !reporter.online || relays_away || (kind === "broken" && !other.online);
    const oldAt = isOld ? Date.parse(reported_at) : undefined;
    const ends = [node, peer].sort((a, b) => a - b);
    // The one that reports a broken path is named first.
    const [from = node, to = peer] = kind === "broken" ? [node, peer] : ends;
    const found: Edge = { from, to, kind, rttMs: rtt_ms ?? undefined, relays, oldAt };
    const known = edges.get(ends.join(" "));
    edges.set(ends.join(" "), known === undefined ? found : together(known, found));
  }
  return [...edges.values()];
}

/** The edge of two reports of one pair. If only one is current, it alone counts. */
function together(a: Edge, b: Edge): Edge {
  if ((a.oldAt === undefined) !== (b.oldAt === undefined)) return a.oldAt === undefined ? a : b;
  return {
    ...(rank[a.kind] > rank[b.kind] ? a : b),
    rttMs: larger(a.rttMs, b.rttMs),
    relays: [...new Set([...a.relays, ...b.relays])],
    oldAt: larger(a.oldAt, b.oldAt),
  };
}

export const isCurrent = ({ oldAt }: Edge): boolean => oldAt === undefined;

/** The worst first: broken ones, then the slowest; what is old comes last. */
export const worstFirst = (a: Edge, b: Edge): number => weightOf(b) - weightOf(a);
const weightOf = ({ kind, rttMs, oldAt }: Edge) =>
  oldAt !== undefined ? -1 : kind === "broken" ? Number.MAX_VALUE : (rttMs ?? 0);

/** "relayed by hub, 12 ms". `time`: how one is written. */
export function wordsOf({ kind, relays, rttMs, oldAt }: Edge, time: (at: number) => string): string {
  const by = relays.length === 0 ? "" : ` by ${relays.join(", ")}`;
  const trip = rttMs === undefined || kind === "broken" ? "" : `, ${rttMs} ms`;
  return `${kind}${by}${oldAt === undefined ? trip : `, as reported ${time(oldAt)}`}`;
}
