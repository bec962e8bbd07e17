// How long the line of a path is. Pure.

/** A path that reaches this, or is longer, is drawn over the whole width. */
const longestMs = 300;
/** Of the least round trip that is told apart. */
const least = 0.1;
const unknown = 0.45;

/** The share of the line: logarithmic, so that both a room and an ocean can be seen. */
export function lengthOf(rttMs: number | null): number {
  if (rttMs === null) return unknown;
  return Math.min(1, Math.max(least, Math.log1p(rttMs) / Math.log1p(longestMs)));
}
