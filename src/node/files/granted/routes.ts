// Decides which routes a control plane may send into its overlay on this machine: private networks behind its nodes. Any part
// of the internet, and networks of this machine or of other organizations, need the permission of this machine's administrator.

import {
  bits,
  holdsNetwork,
  isPrivate,
  networksOverlap,
  parseNetworks,
  parseNetwork,
  specialNetwork,
  type Network,
} from "../../../base/ip.ts";
import { tooMuch, tooWide, widestOf } from "./internet-share.ts";

export type RouteRules = {
  slug: string;
  /** Networks of this organization's own overlay. */
  own: readonly string[];
  /** Overlay networks of the machine's other organizations, by slug. */
  others: readonly (readonly [slug: string, network: string])[];
  /** Networks of this machine's interfaces. */
  attached: readonly { network: string; device: string }[];
  /** Other routes of this machine. */
  routes: readonly { network: string; name: string }[];
  /** Routes that the machine's other organizations have in force, by slug. */
  foreign: readonly (readonly [slug: string, network: string])[];
  /** Routes that this organization has in force. */
  inForce: readonly string[];
  /** Networks of one address that this machine needs outside of overlays. */
  needed: readonly { network: string; name: string }[];
  /** Networks whose routes the administrator has allowed (permissions.json). */
  allowed: readonly string[];
  /** Parts of the internet that were routed before this needed a permission. */
  former: readonly string[];
};

const isPublic = "it is a part of the internet, which only root of this machine may route into an overlay";

type CheckedRoutes = {
  /** The reason for each refused route, by its text as `parseNetwork` formats it. */
  refused: Map<string, string>;
  /** Routes to a network that this machine is in: the machine's own route stays. This is no error. */
  here: Map<string, string>;
};

export function checkRoutes(texts: readonly string[], rules: RouteRules): CheckedRoutes {
  const refused = new Map<string, string>();
  const here = new Map<string, string>();
  const own = parseNetworks(rules.own);
  const allowed = parseNetworks(rules.allowed);
  const former = new Set(rules.former);
  const machineKeeps = keptByMachine(rules);
  const crosses = crossingOf(rules);
  /** Asked in this order, and not where the administrator has allowed the route. */
  const unlessAllowed: readonly Refuser[] = [
    tooWide,
    whySpecial,
    takenBy(rules),
    (route) => (isPrivate(route) || former.has(route.text) ? undefined : isPublic),
  ];
  const counted: Network[] = [];
  for (const route of parseNetworks([...new Set(texts)])) {
    const isAllowed = allowed.some((each) => holdsNetwork(each, route));
    const overlay = inOverlay(route, own, rules.others, isAllowed);
    const machineRoute = machineKeeps(route);
    const reason =
      overlay ??
      machineRoute?.reason ??
      crosses(route, isAllowed) ??
      firstReason(isAllowed ? [] : unlessAllowed, route);
    if (overlay === undefined && machineRoute?.isHere === true) here.set(route.text, machineRoute.reason);
    else if (reason !== undefined) refused.set(route.text, reason);
    else if (!isAllowed) counted.push(route);
  }
  for (const { text } of widestOf(counted, own))
    refused.set(text, `together with the other routes ${tooMuch}`);
  return { refused, here };
}

/** Says why a route is refused; undefined: it is not. */
type Refuser = (route: Network) => string | undefined;

function firstReason(refusers: readonly Refuser[], route: Network): string | undefined {
  for (const refuser of refusers) {
    const reason = refuser(route);
    if (reason !== undefined) return reason;
  }
  return undefined;
}

/**
 * Why an overlay must not take a new network, by its text: the engine routes the networks of certificates as well. Unlike
 * routes, they may be wide or parts of the internet: `takesInternet` decides about all of them. There is none in force to keep.
 */
export function refusedNetworks(
  texts: readonly string[],
  { isSpecialAllowed, ...rules }: Omit<RouteRules, "others" | "former"> & { isSpecialAllowed: boolean },
): Map<string, string> {
  const permitted = parseNetworks(rules.allowed);
  const takes = takenBy(rules);
  const machineKeeps = keptByMachine(rules);
  const crosses = crossingOf({ ...rules, inForce: [] });
  return new Map(
    parseNetworks(texts).flatMap((network) => {
      if (permitted.some((each) => holdsNetwork(each, network))) return [];
      const special = isSpecialAllowed ? undefined : whySpecial(network);
      const reason = special ?? machineKeeps(network)?.reason ?? crosses(network, false) ?? takes(network);
      return reason === undefined ? [] : [[network.text, reason] as const];
    }),
  );
}

export type Overlap = {
  overlay: string;
  with: string;
  name: string;
  /** The machine's route is wider: it loses a part that the overlay takes on purpose. */
  isWider: boolean;
};

/** A network of this machine that an overlay takes over, or, where `isWider`, lies in. */
export function overlapsOf(
  texts: readonly string[],
  { attached, routes, needed, allowed }: Pick<RouteRules, "attached" | "routes" | "needed" | "allowed">,
): Overlap[] {
  const permitted = parseNetworks(allowed);
  const machine = [
    ...attached.map(({ network, device }) => ({
      network,
      name: `a network of this machine's interface ${device}`,
    })),
    ...routes,
    ...needed,
  ].flatMap(({ network: text, name }) => parseNetworks([text]).map((network) => ({ network, name })));
  return parseNetworks(texts).flatMap((overlay) => {
    if (permitted.some((each) => holdsNetwork(each, overlay))) return [];
    return machine.flatMap(({ network, name }): Overlap[] => {
      const isTaken = holdsNetwork(overlay, network);
      if (!isTaken && !holdsNetwork(network, overlay)) return [];
      return [{ overlay: overlay.text, with: network.text, name, isWider: !isTaken }];
    });
  });
}

function inOverlay(
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
  return undefined;
}

function whySpecial(network: Network): string | undefined {
  const special = specialNetwork(network);
  return special === undefined ? undefined : `${special} is never routed through an overlay`;
}

/**
 * Returns why a route of this machine stays, whatever its administrator allowed: the kernel has one route to a network, and
 * the one that an engine replaces does not come back when the engine ends. `isHere`: it leads to where this machine is.
 */
function keptByMachine({ attached, routes }: Pick<RouteRules, "attached" | "routes">) {
  const equal = new Map(routes.map(({ network, name }) => [network, name]));
  const networks = attached.flatMap(({ network, device }) =>
    parseNetworks([network]).map((each) => ({ network: each, device })),
  );
  return (route: Network): { reason: string; isHere: boolean } | undefined => {
    const mine = networks.find(({ network }) => holdsNetwork(network, route));
    if (mine !== undefined) {
      const { text } = mine.network;
      if (text === route.text)
        return { reason: `this machine is in it by its interface ${mine.device}`, isHere: true };
      return {
        reason: `it lies in ${text}, a network of this machine's interface ${mine.device}`,
        isHere: false,
      };
    }
    const same = equal.get(route.text);
    return same === undefined ? undefined : { reason: `there is ${same} to it`, isHere: false };
  };
}

/**
 * Returns why a route would take the traffic of another organization, or lead it into the overlay of this one once its
 * tunnel has stopped. An organization keeps the route that it has, unless root allows the other one: no other gets its traffic
 * by a narrower route, before or after.
 */
function crossingOf({ slug, foreign, inForce }: Pick<RouteRules, "slug" | "foreign" | "inForce">) {
  const otherRoutes = foreign.flatMap(([other, text]) =>
    // Only root allows so wide a route. Like a default route, it takes the packets that no other route takes.
    parseNetworks([text]).flatMap((network) => (tooWide(network) === undefined ? [{ other, network }] : [])),
  );
  // Tables: two organizations may have thousands of routes each. Of several with the same route, the first by name.
  const exact = new Map(
    otherRoutes
      .toSorted((a, b) => (a.other < b.other ? 1 : -1))
      .map((each) => [cutTo(each.network.prefix, each.network), each]),
  );
  const prefixes = [...new Set(otherRoutes.map(({ network }) => network.prefix))];
  const narrowerBy = new Map<number, Map<string, (typeof otherRoutes)[number]>>();
  const narrowerThan = (prefix: number) => {
    const narrower = () => otherRoutes.filter(({ network }) => network.prefix > prefix);
    const found =
      narrowerBy.get(prefix) ?? new Map(narrower().map((each) => [cutTo(prefix, each.network), each]));
    narrowerBy.set(prefix, found);
    return found;
  };
  const hasAlready = new Set(inForce);
  return (route: Network, isAllowed: boolean): string | undefined => {
    const { prefix, text } = route;
    const same = exact.get(cutTo(prefix, route));
    // The kernel has one route to a network. If both organizations got it at the same time, the first by name keeps it.
    const keepsIt = same !== undefined && hasAlready.has(text) && slug < same.other;
    if (same !== undefined && !keepsIt) return `there is a route of the organization "${same.other}" to it`;
    if (isAllowed) return undefined;
    const around = prefixes
      .filter((each) => each < prefix)
      .flatMap((each) => exact.get(cutTo(each, route)) ?? [])[0];
    if (around !== undefined)
      return `it lies in ${around.network.text}, a route of the organization "${around.other}"`;
    const inside = hasAlready.has(text) ? undefined : narrowerThan(prefix).get(cutTo(prefix, route));
    return inside && `it contains ${inside.network.text}, a route of the organization "${inside.other}"`;
  };
}

/** The first bits of a network, as a key. */
const cutTo = (prefix: number, { family, value }: Network): string =>
  `${family}/${prefix}/${value >> BigInt(bits(family) - prefix)}`;

/**
 * Returns the address that a route takes from this machine. The kernel prefers longer routes, so a route that is wider than
 * an attached network does no harm to a name server in it.
 */
function takenBy({
  own,
  attached,
  routes,
  foreign,
  needed,
}: Pick<RouteRules, "own" | "attached" | "routes" | "foreign" | "needed">) {
  const overlays = new Set(own);
  const longer = parseNetworks([
    ...[...attached, ...routes].map(({ network }) => network),
    ...foreign.map(([, network]) => network),
  ]);
  const addresses = needed.flatMap(({ network: text, name }) => {
    const address = parseNetwork(text);
    // An overlay of one address has that address in any case.
    if (address === undefined || overlays.has(text)) return [];
    const reach = Math.max(
      0,
      ...longer.filter((each) => holdsNetwork(each, address)).map(({ prefix }) => prefix),
    );
    return [{ address, name, reach }];
  });
  return (route: Network): string | undefined => {
    const taken = addresses.find(
      ({ address, reach }) => holdsNetwork(route, address) && reach <= route.prefix,
    );
    return taken === undefined ? undefined : `it overlaps ${taken.address.text}, ${taken.name}`;
  };
}
