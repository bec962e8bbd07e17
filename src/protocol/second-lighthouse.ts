// When an organization should have another lighthouse, and the two lines that make it: for `setup` and the console. Pure.

import { brand } from "../brand.ts";

/** From so many nodes on, a single lighthouse is too few. */
const adviseFrom = 10;

/**
 * The two command lines: the first for the administrator, the second for the new lighthouse. Undefined unless many nodes
 * have exactly one lighthouse.
 */
export function secondLighthouse(
  slug: string,
  { nodes, lighthouses }: { nodes: number; lighthouses: number },
): { why: string; lines: readonly [string, string] } | undefined {
  if (nodes < adviseFrom || lighthouses !== 1) return undefined;
  return {
    why: `${nodes} nodes find each other by one lighthouse. Make a second one, on another machine with a public address`,
    lines: [`${brand.executable} admin token create ${slug} --lighthouse`, `${brand.executable} up KEY`],
  };
}
