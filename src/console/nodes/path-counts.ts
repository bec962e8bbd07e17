// How many paths each node has, by kind, as GET paths/counts/ shows it.

import { apiPath } from "../../api/endpoint.ts";
import { pathsApi, type PathCounts } from "../../api/paths/paths.ts";
import { useMemo } from "preact/hooks";
import { useList } from "../contact/resource.ts";

export type CountsByNode = ReadonlyMap<number, PathCounts>;

const countsPath = (slug: string) => apiPath(pathsApi.counts, { slug }, { page_size: "1000" });

/** By node. `relayed` is without those whose relays are away, which have their own count. Asks nothing for the slug "". */
export function usePathCounts(slug: string): CountsByNode {
  // Calm: read every 20 seconds, because reports of paths make no event.
  const { data } = useList(slug === "" ? "" : countsPath(slug), { isCalm: true });
  // The same map while nothing changed: columns are made of it.
  return useMemo(
    () =>
      new Map(
        data?.map(
          (counts) => [counts.node, { ...counts, relayed: counts.relayed - counts.relays_away }] as const,
        ),
      ),
    [data],
  );
}

/** Problems first: "1 broken, 4 relayed, 18 direct, 2 old". A path is old if it was reported before its relays were away. */
export const pathWords = (counted: PathCounts | undefined): string =>
  (
    [
      ["broken", "broken"],
      ["relayed", "relayed"],
      ["direct", "direct"],
      ["relays_away", "old"],
    ] as const
  )
    .flatMap(([key, word]) => (counted?.[key] ? `${counted[key]} ${word}` : []))
    .join(", ");

/** For sorting: a broken path weighs as much as a thousand relayed ones, and these as much as a thousand direct ones. */
export const pathRank = (counted: PathCounts | undefined): number =>
  (counted?.broken ?? 0) * 1e6 + (counted?.relayed ?? 0) * 1e3 + (counted?.direct ?? 0);
