// How much of the internet an overlay takes: the part of all public addresses that its networks and routes cover.

import { addressBits, addressCount, isPrivate, parseNetworks, type Network } from "../../../base/ip.ts";

/** The most addresses that may be routed, by family: 1/32 of IPv4 (eight /8), 1/32 of 2000::/3 (a /8). */
const mostAddresses = { 4: addressCount(4, 5), 6: addressCount(6, 8) } as const;

export const tooMuch = "it takes most of the internet";

/** Whether networks that the engine routes without unsafe_routes take most of the internet. */
export function takesInternet(texts: readonly string[]): boolean {
  const networks = parseNetworks(texts);
  return ([4, 6] as const).some((family) => coverage(networks, family) > mostAddresses[family]);
}

/** Why this route alone is refused; undefined: it is not. */
export function tooWide(route: Network): string | undefined {
  return coverage([route], route.family) > mostAddresses[route.family] ? tooMuch : undefined;
}

/** The widest of these routes, which are too much: without them, the others and the overlay's own networks stay within the limit. */
export function widestOf(routes: readonly Network[], ownOverlay: readonly Network[]): Network[] {
  return ([4, 6] as const).flatMap((family) => {
    const least = leastPrefix(routes, ownOverlay, family);
    return routes.filter((route) => isCounted(route, family) && route.prefix < least);
  });
}

const isCounted = (network: Network, family: 4 | 6): boolean =>
  network.family === family && !isPrivate(network);

/**
 * The shortest prefix for which all routes with it or a longer one stay within the limit. Wider routes are refused. The overlay's
 * own networks always count.
 */
function leastPrefix(routes: readonly Network[], ownOverlay: readonly Network[], family: 4 | 6): number {
  const ownNetworks = new Set(ownOverlay);
  const sorted = inOrder([...ownOverlay, ...routes], family);
  let low = 0;
  let high = addressBits(family) + 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    const narrow = sorted.filter((network) => network.prefix >= middle || ownNetworks.has(network));
    if (countAddresses(narrow) <= mostAddresses[family]) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The number of addresses of the internet that these networks have. */
function coverage(networks: readonly Network[], family: 4 | 6): bigint {
  return countAddresses(inOrder(networks, family));
}

/** The networks on the internet, sorted by first address. */
function inOrder(networks: readonly Network[], family: 4 | 6): Network[] {
  return networks
    .filter((network) => isCounted(network, family))
    .sort((a, b) => compareAddresses(a.value, b.value));
}

function compareAddresses(a: bigint, b: bigint): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

/** The number of addresses in at least one of these networks, which are sorted by first address. */
function countAddresses(sorted: readonly Network[]): bigint {
  let sum = 0n;
  /** The first address after the networks so far. */
  let end = 0n;
  for (const { family, value: first, prefix } of sorted) {
    const next = first + addressCount(family, prefix);
    if (next <= end) continue;
    sum += next - (first > end ? first : end);
    end = next;
  }
  return sum;
}
