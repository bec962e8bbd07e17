// When an organization should have another lighthouse, and the two lines that make it: for `setup` and the console. Pure.

import { brand } from "../brand.ts";

/** As many nodes depend on a single machine at most, unadvised. */
const adviseFrom = 10;

/** The first is typed where the organization is administered, the second on the new lighthouse. Undefined: enough, or few nodes. */
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
