// How much of the internet an overlay takes.

import { bits, isPrivate, parseNetworks, size, type Network } from "../../../base/ip.ts";

/** The largest part of the internet that stays routed from before: 1/32 of IPv4 (eight /8), 1/32 of 2000::/3 (a /8). */
const share = { 4: size(4, 5), 6: size(6, 8) } as const;

export const tooMuch = "it takes most of the internet";
/** Whether networks that the engine routes without unsafe_routes take most of the internet. */
export function takesInternet(texts: readonly string[]): boolean {
  const all = parseNetworks(texts);
  return ([4, 6] as const).some((family) => coverage(all, family) > share[family]);
}

/** Why this route alone is refused; undefined: it is not. */
export function tooWide(route: Network): string | undefined {
  return coverage([route], route.family) > share[route.family] ? tooMuch : undefined;
}

/** The widest of these routes: without them, the others and the overlay's own networks stay within the share. */
export function widestOf(routes: readonly Network[], own: readonly Network[]): Network[] {
  return ([4, 6] as const).flatMap((family) => {
    const least = leastPrefix(routes, own, family);
    return routes.filter((each) => isCounted(each, family) && each.prefix < least);
  });
}

const isCounted = (network: Network, family: 4 | 6): boolean =>
  network.family === family && !isPrivate(network);

/** The shortest prefix for which all routes with it or a longer one stay within the share. Wider routes are refused. */
function leastPrefix(routes: readonly Network[], own: readonly Network[], family: 4 | 6): number {
  const ownNetworks = new Set(own);
  const sorted = inOrder([...own, ...routes], family);
  let [low, high] = [0, bits(family) + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    const narrow = sorted.filter((each) => each.prefix >= middle || ownNetworks.has(each));
    if (covered(narrow) <= share[family]) high = middle;
    else low = middle + 1;
  }
  return low;
}

function coverage(all: readonly Network[], family: 4 | 6): bigint {
  return covered(inOrder(all, family));
}

/** The networks on the internet, sorted by first address. */
function inOrder(all: readonly Network[], family: 4 | 6): Network[] {
  return all.filter((each) => isCounted(each, family)).sort((a, b) => compareAddresses(a.value, b.value));
}

function compareAddresses(a: bigint, b: bigint): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

/** The number of addresses in at least one of these networks, which are sorted. */
function covered(sorted: readonly Network[]): bigint {
  let [sum, end] = [0n, 0n];
  for (const { family, value, prefix } of sorted) {
    const last = value + size(family, prefix);
    if (last <= end) continue;
    sum += last - (value > end ? value : end);
    end = last;
  }
  return sum;
}
