// How long the line of a path is. Pure.

/** A path with this round trip, or a longer one, is drawn over the whole width. */
const longestMs = 300;
/** The share of the width of the shortest line. */
const leastShare = 0.1;
const unknownShare = 0.45;

/** The share of the width, 0 to 1: logarithmic, so that paths within a room and across an ocean can be told apart. */
export function lengthOf(rttMs: number | null): number {
  if (rttMs === null) return unknownShare;
  return Math.min(1, Math.max(leastShare, Math.log1p(rttMs) / Math.log1p(longestMs)));
}
