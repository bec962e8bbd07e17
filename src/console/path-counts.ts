// How many paths each machine has, by kind, as GET paths/counts/ shows it.

import { useMemo } from "preact/hooks";
import { org } from "./api.ts";
import { useList } from "./resource.ts";

type Counted = { node: number; direct: number; relayed: number; broken: number };
export type PathCounts = ReadonlyMap<number, Counted>;

/** By machine. Nothing is asked for unless `isWanted`. */
export function usePathCounts(own: string, isWanted: boolean): PathCounts {
  const path = isWanted ? `${org(own, "paths/counts/")}?page_size=1000` : "";
  const { data } = useList<Counted>(path, { isCalm: true });
  // The same map while nothing changed: columns are made of it.
  return useMemo(() => new Map((data ?? []).map((each) => [each.node, each])), [data]);
}

/** What is wrong comes first: "1 broken, 4 relayed, 18 direct". */
export function pathWords(counted: Counted | undefined): string {
  if (counted === undefined) return "";
  return (["broken", "relayed", "direct"] as const)
    .filter((kind) => counted[kind] > 0)
    .map((kind) => `${counted[kind]} ${kind}`)
    .join(", ");
}

/** Orders by what is wrong. */
export const pathRank = (counted: Counted | undefined): number =>
  (counted?.broken ?? 0) * 1e6 + (counted?.relayed ?? 0) * 1e3 + (counted?.direct ?? 0);
