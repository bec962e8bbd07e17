// Decides which routes a control plane may send into its overlay on this machine: private networks behind its nodes. Any part
// of the internet, and networks of this machine or of other organizations, need the permission of this machine's administrator.
// Also decides about the networks of an overlay itself, which an engine routes as well. Networks are texts, "10.9.0.0/16".

import {
  holdsNetwork,
  isPrivate,
  networksOverlap,
  parseNetworks,
  parseNetwork,
  specialNetwork,
  type Network,
} from "../../../base/ip.ts";
import { crossingOf, type OfOther } from "./crossing-routes.ts";
import { tooMuch, tooWide, widestOf } from "./internet-share.ts";

export type RouteRules = {
  slug: string;
  /** Networks of this organization's own overlay. */
  ownOverlay: readonly string[];
  /** Overlay networks of the machine's other organizations. */
  otherOverlays: readonly OfOther[];
  /** Networks of this machine's interfaces. */
  attached: readonly { network: string; device: string }[];
  /** Other routes of this machine. */
  machineRoutes: readonly { network: string; name: string }[];
  /** Routes that the machine's other organizations have in force. */
  otherRoutes: readonly OfOther[];
  /** Routes that this organization has in force. */
  inForce: readonly string[];
  /** Networks of one address that this machine needs outside of overlays. */
  needed: readonly { network: string; name: string }[];
  /** Networks whose routes the administrator has allowed (permissions.json). */
  allowed: readonly string[];
  /** Parts of the internet that were routed before this needed a permission. */
  formerlyRouted: readonly string[];
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
  const ownOverlay = parseNetworks(rules.ownOverlay);
  const allowed = parseNetworks(rules.allowed);
  const formerlyRouted = new Set(rules.formerlyRouted);
  const machineKeeps = keptByMachine(rules);
  const crosses = crossingOf(rules);
  /** In the order in which they are asked. They are not asked about a route that the administrator has allowed. */
  const unlessAllowed: readonly Refuser[] = [
    tooWide,
    whySpecial,
    takenBy(rules),
    (route) => (isPrivate(route) || formerlyRouted.has(route.text) ? undefined : isPublic),
  ];
  /** Accepted without a permission: together they must not take most of the internet (internet-share.ts). */
  const counted: Network[] = [];
  for (const route of parseNetworks([...new Set(texts)])) {
    const isAllowed = allowed.some((network) => holdsNetwork(network, route));
    const overlay = inOverlay(route, ownOverlay, rules.otherOverlays, isAllowed);
    const kept = machineKeeps(route);
    const reason =
      overlay ??
      kept?.reason ??
      crosses(route, isAllowed) ??
      firstReason(isAllowed ? [] : unlessAllowed, route);
    // A route to a network that this machine is in is no error, unless an overlay has that network.
    if (overlay === undefined && kept?.isHere === true) here.set(route.text, kept.reason);
    else if (reason !== undefined) refused.set(route.text, reason);
    else if (!isAllowed) counted.push(route);
  }
  for (const { text } of widestOf(counted, ownOverlay))
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
 * routes, they may be wide or parts of the internet: `takesInternet` decides about all of them. `inForce` does not count: a new
 * network takes no precedence over another organization's route. `isSpecialAllowed`: at the registration, where the user accepts the
 * overlay's networks.
 */
export function refusedNetworks(
  texts: readonly string[],
  {
    isSpecialAllowed,
    ...rules
  }: Omit<RouteRules, "otherOverlays" | "formerlyRouted"> & { isSpecialAllowed: boolean },
): Map<string, string> {
  const allowed = parseNetworks(rules.allowed);
  const takes = takenBy(rules);
  const machineKeeps = keptByMachine(rules);
  const crosses = crossingOf({ ...rules, inForce: [] });
  return new Map(
    parseNetworks(texts).flatMap((network) => {
      if (allowed.some((permitted) => holdsNetwork(permitted, network))) return [];
      const special = isSpecialAllowed ? undefined : whySpecial(network);
      const reason = special ?? machineKeeps(network)?.reason ?? crosses(network, false) ?? takes(network);
      return reason === undefined ? [] : [[network.text, reason] as const];
    }),
  );
}

export type Overlap = {
  overlay: string;
  /** The network of this machine, and what it is. */
  with: string;
  name: string;
  /** The machine's route is wider than the overlay: it loses only the part that the overlay takes on purpose. */
  isWider: boolean;
};

/** The networks of this machine that an overlay takes over or, if `isWider`, lies in. */
export function overlapsOf(
  texts: readonly string[],
  {
    attached,
    machineRoutes,
    needed,
    ...rules
  }: Pick<RouteRules, "attached" | "machineRoutes" | "needed" | "allowed">,
): Overlap[] {
  const allowed = parseNetworks(rules.allowed);
  const ofMachine = [
    ...attached.map(({ network, device }) => ({
      network,
      name: `a network of this machine's interface ${device}`,
    })),
    ...machineRoutes,
    ...needed,
  ].flatMap(({ network: text, name }) => parseNetworks([text]).map((network) => ({ network, name })));
  return parseNetworks(texts).flatMap((overlay) => {
    if (allowed.some((permitted) => holdsNetwork(permitted, overlay))) return [];
    return ofMachine.flatMap(({ network, name }): Overlap[] => {
      const isTaken = holdsNetwork(overlay, network);
      if (!isTaken && !holdsNetwork(network, overlay)) return [];
      return [{ overlay: overlay.text, with: network.text, name, isWider: !isTaken }];
    });
  });
}

/** Why a route would touch the network of an overlay: of its own, or of another organization's. */
function inOverlay(
  route: Network,
  ownOverlay: readonly Network[],
  otherOverlays: RouteRules["otherOverlays"],
  isAllowed: boolean,
): string | undefined {
  // The engine refuses the whole configuration for such a route.
  const inside = ownOverlay.find((network) => holdsNetwork(network, route));
  if (inside !== undefined) return `it lies in the overlay's own network ${inside.text}`;
  for (const { slug, network } of otherOverlays) {
    const overlay = parseNetwork(network);
    if (overlay === undefined) continue;
    // A permission admits only a route that is wider than the overlay, whose own route is then preferred.
    if (holdsNetwork(overlay, route) || (networksOverlap(overlay, route) && !isAllowed))
      return `it overlaps ${network}, the network of the organization "${slug}"`;
  }
  return undefined;
}

function whySpecial(network: Network): string | undefined {
  const special = specialNetwork(network);
  return special === undefined ? undefined : `${special} is never routed through an overlay`;
}

/**
 * Returns a function that says why a route of this machine stays, whatever its administrator allowed: the kernel has one route
 * to a network, and the one that an engine replaces does not come back when the engine ends. `isHere`: this machine is in the
 * very network.
 */
function keptByMachine({ attached, machineRoutes }: Pick<RouteRules, "attached" | "machineRoutes">) {
  const nameByNetwork = new Map(machineRoutes.map(({ network, name }) => [network, name]));
  const interfaces = attached.flatMap(({ network: text, device }) =>
    parseNetworks([text]).map((network) => ({ network, device })),
  );
  return (route: Network): { reason: string; isHere: boolean } | undefined => {
    const around = interfaces.find(({ network }) => holdsNetwork(network, route));
    if (around !== undefined) {
      const { network, device } = around;
      if (network.text === route.text)
        return { reason: `this machine is in it by its interface ${device}`, isHere: true };
      return {
        reason: `it lies in ${network.text}, a network of this machine's interface ${device}`,
        isHere: false,
      };
    }
    const name = nameByNetwork.get(route.text);
    return name === undefined ? undefined : { reason: `there is ${name} to it`, isHere: false };
  };
}

/**
 * Returns a function that says which address that this machine needs a route would take. The kernel prefers the longest prefix:
 * a name server in an attached network is still reached if the new route is wider than that network.
 */
function takenBy({
  ownOverlay,
  attached,
  machineRoutes,
  otherRoutes,
  needed,
}: Pick<RouteRules, "ownOverlay" | "attached" | "machineRoutes" | "otherRoutes" | "needed">) {
  const overlays = new Set(ownOverlay);
  const routed = parseNetworks([...attached, ...machineRoutes, ...otherRoutes].map(({ network }) => network));
  const addresses = needed.flatMap(({ network: text, name }) => {
    const address = parseNetwork(text);
    // An overlay of one address has that address in any case.
    if (address === undefined || overlays.has(text)) return [];
    const around = routed.filter((network) => holdsNetwork(network, address));
    return [{ address, name, longestPrefix: Math.max(0, ...around.map(({ prefix }) => prefix)) }];
  });
  return (route: Network): string | undefined => {
    const taken = addresses.find(
      ({ address, longestPrefix }) => holdsNetwork(route, address) && longestPrefix <= route.prefix,
    );
    return taken === undefined ? undefined : `it overlaps ${taken.address.text}, ${taken.name}`;
  };
}
