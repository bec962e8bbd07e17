// How many paths each machine has, by kind, as GET paths/counts/ shows it.

import { useMemo } from "preact/hooks";
import { org } from "./api.ts";
import { useList } from "./resource.ts";

/** `relays_away`: so many of `relayed` go over relays that are away, and are old. */
type Counted = { node: number; direct: number; relayed: number; relays_away: number; broken: number };
export type PathCounts = ReadonlyMap<number, Counted>;

/** By machine. */
export function usePathCounts(own: string): PathCounts {
  const { data } = useList<Counted>(`${org(own, "paths/counts/")}?page_size=1000`, { isCalm: true });
  // The same map while nothing changed: columns are made of it.
  return useMemo(
    () =>
      new Map(
        data?.map((each) => [each.node, { ...each, relayed: each.relayed - each.relays_away }] as const),
      ),
    [data],
  );
}

/** What is wrong comes first: "1 broken, 4 relayed, 18 direct". */
export const pathWords = (counted: Counted | undefined): string =>
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

/** Orders by what is wrong. */
export const pathRank = (counted: Counted | undefined): number =>
  (counted?.broken ?? 0) * 1e6 + (counted?.relayed ?? 0) * 1e3 + (counted?.direct ?? 0);
