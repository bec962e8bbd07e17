// The part of routes.ts about routes of this machine's other organizations: whether a route would cross one of them.

import { addressBits, parseNetworks, type Network } from "../../../base/ip.ts";
import { tooWide } from "./internet-share.ts";

/** A network of another organization of this machine. */
export type OfOther = { slug: string; network: string };

/**
 * Returns a function that says why a route would take the traffic of another organization, or lead it into this organization's
 * overlay once the other's engine has stopped. In this order:
 *
 * - Equal to another's route: refused, even if root allows it. If both have it in force, the first by name keeps it.
 * - Inside another's route: refused unless root allows it, even if it was in force before.
 * - Around another's route: the same, but one that is in force stays.
 */
export function crossingOf({
  slug,
  otherRoutes,
  inForce,
}: {
  slug: string;
  /** Routes that the other organizations have in force. */
  otherRoutes: readonly OfOther[];
  /** Routes that this organization has in force. */
  inForce: readonly string[];
}) {
  const parsed = otherRoutes.flatMap(({ slug: of, network }) =>
    parseNetworks([network]).map((route): OtherRoute => ({ of, network: route })),
  );
  // Only root allows so wide a route. Like a default route, it takes the packets that no other route takes.
  const others = tableOf(parsed.filter(({ network }) => tooWide(network) === undefined));
  const ownInForce = new Set(inForce);
  return (route: Network, isAllowed: boolean): string | undefined => {
    const equal = others.equalTo(route);
    // The kernel has one route to a network, and both organizations may have got it at the same time.
    const keepsIt = equal !== undefined && ownInForce.has(route.text) && slug < equal.of;
    if (equal !== undefined && !keepsIt) return `there is a route of the organization "${equal.of}" to it`;
    if (isAllowed) return undefined;
    const around = others.around(route);
    if (around !== undefined)
      return `it lies in ${around.network.text}, a route of the organization "${around.of}"`;
    const inside = ownInForce.has(route.text) ? undefined : others.inside(route);
    return inside && `it contains ${inside.network.text}, a route of the organization "${inside.of}"`;
  };
}

/** `of`: the slug of its organization. */
type OtherRoute = { of: string; network: Network };

/** Finds routes without comparing all: two organizations may have thousands each. */
function tableOf(routes: readonly OtherRoute[]) {
  // Of several equal routes the first by name counts. It is set last, and so it stays.
  const lastNameFirst = routes.toSorted((a, b) => (a.of < b.of ? 1 : -1));
  const byNetwork = new Map(
    lastNameFirst.map((route) => [prefixKey(route.network.prefix, route.network), route]),
  );
  const prefixes = [...new Set(routes.map(({ network }) => network.prefix))];
  /** By prefix length: the routes with a longer prefix, by the key of their first bits. Made when a length is first asked for. */
  const narrowerByPrefix = new Map<number, Map<string, OtherRoute>>();
  const narrowerThan = (prefix: number): Map<string, OtherRoute> => {
    const made = narrowerByPrefix.get(prefix);
    if (made !== undefined) return made;
    const narrower = routes.filter(({ network }) => network.prefix > prefix);
    const byKey = new Map(narrower.map((route) => [prefixKey(prefix, route.network), route]));
    narrowerByPrefix.set(prefix, byKey);
    return byKey;
  };
  return {
    equalTo: (network: Network) => byNetwork.get(prefixKey(network.prefix, network)),
    /** A wider route that holds this network. */
    around: (network: Network) =>
      prefixes
        .filter((prefix) => prefix < network.prefix)
        .flatMap((prefix) => byNetwork.get(prefixKey(prefix, network)) ?? [])[0],
    /** A narrower route within this network. */
    inside: (network: Network) => narrowerThan(network.prefix).get(prefixKey(network.prefix, network)),
  };
}

/** A key of the first `prefix` bits of a network: networks with equal keys lie in the same network of that length. */
const prefixKey = (prefix: number, { family, value }: Network): string =>
  `${family}/${prefix}/${value >> BigInt(addressBits(family) - prefix)}`;
