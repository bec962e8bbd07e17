// What root of this machine offers to route, what of it an administrator has approved, and in which state each network is.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { textOrEmpty } from "../../base/files.ts";
import { given } from "../../base/given.ts";
import { maskNetwork, networkTextsOverlap } from "../../base/ip.ts";
import type { MachineState } from "../../platform/machine-state.ts";
import { parseOffer, type Advertised, type Offer } from "../../protocol/routing/advertised.ts";
import { overlayIn, subnetsIn } from "../files/granted/networks.ts";
import { permissionsOrNone } from "../files/permissions.ts";
import { readRouterFile } from "./router-file.ts";

/** Parses nothing for a machine without permissions.json: every check-in asks. Without those of `overlayOffers`. */
function readOffers(directory: string): Offer[] {
  return allOffers(directory).filter((offer) => overlayIn(offer, directory) === undefined);
}

function allOffers(directory: string): Offer[] {
  if (!existsSync(join(directory, "permissions.json"))) return [];
  return permissionsOrNone(directory).advertise.flatMap((each) => parseOffer(each) ?? []);
}

/** Offers that overlap the overlay: neither told to the control plane, which refuses them, nor routed. Made at the registration. */
export function overlayOffers(directory: string): { network: string; overlay: string }[] {
  return allOffers(directory).flatMap((offer) => {
    const overlay = overlayIn(offer, directory);
    return overlay === undefined ? [] : [{ network: offer.network, overlay }];
  });
}

/** The offered networks, as they are called here, that this machine is not in and has no route to: it would use its default route. */
export function awayOffers(directory: string, { addresses, routes }: MachineState): string[] {
  const near = [
    ...addresses.flatMap(({ address }) => maskNetwork(address) ?? []),
    ...routes.map(({ network }) => network),
  ];
  return readOffers(directory).flatMap(({ network, behind = network }) =>
    near.some((each) => networkTextsOverlap(each, behind)) ? [] : [behind],
  );
}

/** The offers that the node's certificate holds: only what both root and an administrator want is routed. */
export function approvedOffers(directory: string): Offer[] {
  const offers = readOffers(directory);
  if (offers.length === 0) return [];
  const approved = certifiedNetworks(directory);
  return offers.filter(({ network }) => approved.includes(network));
}

const certifiedNetworks = (directory: string) => subnetsIn(textOrEmpty(directory, "host.crt"));

/** Networks that this node routes for others without an offer: root has set them up by hand, or has ended the offer. */
export function withoutOffer(directory: string): string[] {
  const offered = readOffers(directory).map(({ network }) => network);
  // Default routes are those of exits.
  const networks = certifiedNetworks(directory).filter((each) => !each.endsWith("/0"));
  return networks.filter((each) => !offered.includes(each));
}

/** Whether there is something to make ready, to take back, or to watch. */
export function hasRouterWork(directory: string): boolean {
  return (
    readRouterFile(directory) !== undefined ||
    approvedOffers(directory).length > 0 ||
    withoutOffer(directory).length > 0
  );
}

/** What check-ins report; undefined where nothing is offered. */
export function advertisedNow(directory: string): Advertised[] | undefined {
  const offers = readOffers(directory);
  if (offers.length === 0) return undefined;
  const states = readRouterFile(directory)?.networks ?? {};
  return offers.map((offer) => {
    const { state, why } = states[offer.network] ?? {};
    return { ...offer, ...given({ state, why }) };
  });
}
