// Decides which routes a control plane may send into its overlay on this machine: networks behind its nodes. Most of the
// internet, and networks of this machine or of other organizations, need the permission of this machine's administrator.

import {
  bits,
  holdsNetwork,
  isPrivate,
  networksOverlap,
  parseAll,
  parseNetwork,
  size,
  type Network,
} from "../../ip.ts";
import type { Reserved } from "./reserved-networks.ts";

export type RouteRules = {
  /** Networks of this organization's own overlay. */
  own: readonly string[];
  /** Overlay networks of the machine's other organizations, by slug. */
  others: readonly (readonly [slug: string, network: string])[];
  /** Networks of this machine that only an allowed route may overlap (reserved-networks.ts). */
  reserved: readonly Reserved[];
  /** Networks whose routes the administrator has allowed (permissions.json). */
  allowed: readonly string[];
};

/** Addresses of the machine itself and of its links. 64:ff9b::/96 reaches all of IPv4 (RFC 6052). */
const neverRouted = parseAll([
  "0.0.0.0/8",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "224.0.0.0/3",
  "::/96",
  "64:ff9b::/96",
  "fe80::/10",
  "ff00::/8",
]);

/** The largest part of the internet that an organization may route: 1/32 of IPv4 (eight /8), 1/32 of 2000::/3 (a /8). */
const share = { 4: size(4, 5), 6: size(6, 8) } as const;

const tooMuch = "it takes most of the internet";

/** The reason for each refused route, by its text as `parseNetwork` formats it. */
export function refusedRoutes(routes: readonly string[], rules: RouteRules): Map<string, string> {
  const refused = new Map<string, string>();
  const own = parseAll(rules.own);
  const allowed = parseAll(rules.allowed);
  const isAllowed = (route: Network) => allowed.some((each) => holdsNetwork(each, route));
  const reserved = parseReserved(rules.reserved, own);
  const counted: Network[] = [];
  for (const route of parseAll([...new Set(routes)])) {
    const reason =
      refusal(route, own, rules.others, isAllowed(route)) ?? overlapped(route, reserved, isAllowed(route));
    if (reason !== undefined) refused.set(route.text, reason);
    else if (!isAllowed(route)) counted.push(route);
  }
  for (const family of [4, 6] as const) {
    const least = leastPrefix(counted, own, family);
    for (const { text, prefix } of counted.filter((each) => isCounted(each, family)))
      if (prefix < least) refused.set(text, `together with the other routes ${tooMuch}`);
  }
  return refused;
}

/** Why an overlay must not take a network, by its text: the engine routes the networks of certificates as well. */
export function refusedNetworks(
  texts: readonly string[],
  {
    own,
    reserved,
    allowed,
    isSpecialAllowed,
  }: Pick<RouteRules, "own" | "reserved" | "allowed"> & { isSpecialAllowed: boolean },
): Map<string, string> {
  const permitted = parseAll(allowed);
  const parsed = parseReserved(reserved, parseAll(own));
  return new Map(
    parseAll(texts).flatMap((network) => {
      const isAllowed = permitted.some((each) => holdsNetwork(each, network));
      const special = isSpecialAllowed ? undefined : whySpecial(network);
      const reason = isAllowed ? undefined : (special ?? overlapped(network, parsed, false));
      return reason === undefined ? [] : [[network.text, reason] as const];
    }),
  );
}

/** Whether networks that the engine routes without unsafe_routes take most of the internet. */
export function takesInternet(texts: readonly string[]): boolean {
  const all = parseAll(texts);
  return ([4, 6] as const).some((family) => coverage(all, family) > share[family]);
}

function refusal(
  route: Network,
  own: readonly Network[],
  others: RouteRules["others"],
  isAllowed: boolean,
): string | undefined {
  // The engine refuses the whole configuration for such a route.
  const inside = own.find((each) => holdsNetwork(each, route));
  if (inside !== undefined) return `it lies in the overlay's own network ${inside.text}`;
  for (const [slug, text] of others) {
    const other = parseNetwork(text);
    if (other === undefined) continue;
    if (holdsNetwork(other, route) || (networksOverlap(other, route) && !isAllowed))
      return `it overlaps ${text}, the network of the organization "${slug}"`;
  }
  if (isAllowed) return undefined;
  if (coverage([route], route.family) > share[route.family]) return tooMuch;
  return whySpecial(route);
}

function whySpecial(network: Network): string | undefined {
  const special = neverRouted.find((each) => networksOverlap(each, network));
  return special === undefined ? undefined : `${special.text} is never routed through an overlay`;
}

/** This organization's own tunnel is attached too, and is no network beside it. */
function parseReserved(reserved: readonly Reserved[], own: readonly Network[]) {
  return reserved.flatMap(({ network: text, ...rest }) => {
    const network = parseNetwork(text);
    return network === undefined || own.some((each) => each.text === network.text)
      ? []
      : [{ network, ...rest }];
  });
}

/**
 * A route that is narrower than an attached network, or equal to it, would take it away from the machine. A route to a
 * control plane would hold back the check-ins of its organization.
 */
function overlapped(
  route: Network,
  reserved: readonly { network: Network; name: string; isAttached: boolean }[],
  isAllowed: boolean,
): string | undefined {
  if (isAllowed) return undefined;
  const found = reserved.find(({ network, isAttached }) =>
    isAttached ? holdsNetwork(network, route) : networksOverlap(network, route),
  );
  return found === undefined ? undefined : `it overlaps ${found.network.text}, ${found.name}`;
}

const isCounted = (network: Network, family: 4 | 6): boolean =>
  network.family === family && !isPrivate(network);

/** The shortest prefix for which all routes with it or a longer one stay within the share. Wider routes are refused. */
function leastPrefix(routes: readonly Network[], own: readonly Network[], family: 4 | 6): number {
  const kept = new Set(own);
  const sorted = inOrder([...own, ...routes], family);
  let [low, high] = [0, bits(family) + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    const narrow = sorted.filter((each) => each.prefix >= middle || kept.has(each));
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
  return all
    .filter((each) => isCounted(each, family))
    .sort(({ value: a }, { value: b }) => (a < b ? -1 : a > b ? 1 : 0));
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
