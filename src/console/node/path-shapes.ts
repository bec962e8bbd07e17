// How paths are drawn: the bars of a node, and the length of a line. Pure.

import type { PathCounts } from "../../api/paths/paths.ts";

/** A path with this round trip, or a longer one, is drawn over the whole width. */
const longestMs = 300;
/** The share of the width of the shortest line. */
const leastShare = 0.1;
/** The share of a line whose round trip is unknown. */
const unknownShare = 0.45;

/** The share of the width, 0 to 1: logarithmic, so that paths within a room and across an ocean can be told apart. */
export function lengthOf(rttMs: number | null): number {
  if (rttMs === null) return unknownShare;
  return Math.min(1, Math.max(leastShare, Math.log1p(rttMs) / Math.log1p(longestMs)));
}

/** More paths have this number of bars, too. */
const maxBars = 6;

/** Unlike in the API, `relayed` is without `relays_away` (nodes/path-counts.ts). */
export type SeparateCounts = PathCounts;

export const countOf = ({ broken, relayed, direct, relays_away }: SeparateCounts) =>
  broken + relayed + direct + relays_away;

/** How a bar is drawn: red for broken (`x`), amber for relayed (`r`), grey for direct (`d`), faint if all relays are away (`old`). */
const kinds = ["x", "r", "d", "old"] as const;
type BarKind = (typeof kinds)[number];

/** The bars: beyond six paths, each kind has its share, and at least one. None if many paths are all direct: the number alone says it. */
export function barsOf(counted: SeparateCounts): BarKind[] {
  const { broken, relayed, direct, relays_away } = counted;
  const count = countOf(counted);
  const length = Math.min(count, maxBars);
  if (count > maxBars && direct === count) return [];
  const parts = [broken, relayed, direct, relays_away];
  const bars = parts.map((part) => part && Math.max(1, Math.floor((part * length) / count)));
  // The largest kind gets the bars that rounding left, or gives those that it added.
  const largest = parts.indexOf(Math.max(...parts));
  const rest = length - bars.reduce((sum, each) => sum + each);
  return kinds.flatMap((kind, at) =>
    Array<BarKind>((bars[at] ?? 0) + (at === largest ? rest : 0)).fill(kind),
  );
}
