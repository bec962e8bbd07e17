// How many nodes each ring of an update has: one node, 5 %, 25 %, all.

/** How many nodes have been reached at the end of each ring. A small organization has fewer rings. */
export function ringEnds(count: number): number[] {
  const ends = [Math.min(1, count), Math.ceil(count * 0.05), Math.ceil(count * 0.25), count];
  // Without rings that would reach no further node.
  return ends.filter((end, at) => end > (ends[at - 1] ?? 0));
}
