// Overlay networks of this machine, as its certificates name them. Certificates were verified before they were stored
// (verify-download.ts). node-config.json was not: by a false network in it, one organization could keep another from starting.

import { join } from "node:path";
import { readTextIfThere } from "../../../base/files.ts";
import { maskNetwork, networkTextsOverlap } from "../../../base/ip.ts";
import type { Offer } from "../../../protocol/routing/advertised.ts";
import { decodeBundle } from "../../../pki/bundle.ts";

/** The node's addresses with their prefix lengths, "10.77.0.5/16". */
export const prefixedAddressesIn = (hostCrt: string): string[] => valuesIn(hostCrt, "networks");

/** The node's addresses without prefix lengths. */
export const addressesIn = (hostCrt: string): string[] =>
  prefixedAddressesIn(hostCrt).map((address) => address.replace(/\/\d+$/, ""));

/** The subnets behind the node that its certificates permit. */
export const subnetsIn = (hostCrt: string): string[] => valuesIn(hostCrt, "unsafeNetworks");

/** Sorted. Two certificates may hold the same value. */
function valuesIn(hostCrt: string, key: "networks" | "unsafeNetworks"): string[] {
  if (hostCrt === "") return [];
  return [...new Set(decodeBundle(hostCrt).flatMap((certificate) => certificate[key]))].sort();
}

/** The networks that an engine with these certificates routes, "10.77.0.0/16". */
export function maskedNetworks(hostCrt: string): string[] {
  return [...new Set(prefixedAddressesIn(hostCrt).flatMap((address) => maskNetwork(address) ?? []))];
}

/** The overlay's network that an offer overlaps; undefined if there is none, or before the registration, or for a damaged certificate. */
export function overlayIn({ network, behind = network }: Offer, directory: string): string | undefined {
  try {
    const overlaps = (overlay: string) =>
      networkTextsOverlap(network, overlay) || networkTextsOverlap(behind, overlay);
    return overlayNetworks(directory).find(overlaps);
  } catch {
    return undefined;
  }
}

/** The networks of a registered organization. */
export function overlayNetworks(directory: string): string[] {
  return maskedNetworks(readTextIfThere(join(directory, "host.crt")) ?? "");
}
