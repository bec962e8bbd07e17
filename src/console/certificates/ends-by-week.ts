// The histogram of the weeks in which the certificates of nodes end.

import { nodeLifetimeMs } from "../../api/values.ts";

const dayMs = 86_400_000;
const weekMs = 7 * dayMs;
/** The weeks that a certificate can live. */
export const weeks = Math.ceil(nodeLifetimeMs / weekMs);
/**
 * How far into these weeks from now certificates are due, as a share from 0 to 1: they are renewed when a third of their life is left,
 * so what ends before this place should have been renewed.
 */
export const renewalShare = nodeLifetimeMs / 3 / (weeks * weekMs);
/** How many certificates end in each week from now. `ends`, `now`: ms. What ends later counts in the last one. `ended`: already. */
export function endsByWeek(ends: readonly number[], now: number): { counts: number[]; ended: number } {
  const counts = Array.from({ length: weeks }, () => 0);
  const later = ends.filter((end) => end > now);
  for (const end of later) {
    const week = Math.min(Math.floor((end - now) / weekMs), weeks - 1);
    counts[week] = (counts[week] ?? 0) + 1;
  }
  return { counts, ended: ends.length - later.length };
}
