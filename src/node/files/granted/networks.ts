// Overlay networks of this machine. They are read from verified certificates only: with an unverified network of
// node-config.json, one organization could prevent another from starting.

import { join } from "node:path";
import { readTextIfThere } from "../../../base/files.ts";
import {
  maskNetwork,
  networkContains,
  networksOverlap,
  parseAddress,
  parseNetwork,
} from "../../../base/ip.ts";
import { decodeBundle } from "../../../pki/bundle.ts";

/** The node's addresses with their prefix lengths, "10.77.0.5/16". Two certificates may hold the same address. */
export function networksIn(hostCrt: string): string[] {
  if (hostCrt === "") return [];
  return [...new Set(decodeBundle(hostCrt).flatMap(({ networks }) => networks))].sort();
}

/** The subnets behind the node that its certificates permit. */
export function subnetsIn(hostCrt: string): string[] {
  if (hostCrt === "") return [];
  return [...new Set(decodeBundle(hostCrt).flatMap(({ unsafeNetworks }) => unsafeNetworks))].sort();
}

/** The networks that an engine with these certificates routes, "10.77.0.0/16". */
export function maskedNetworks(hostCrt: string): string[] {
  return [...new Set(networksIn(hostCrt).flatMap((each) => maskNetwork(each) ?? []))];
}

/** The networks of a registered organization. */
export function overlayNetworks(directory: string): string[] {
  return maskedNetworks(readTextIfThere(join(directory, "host.crt")) ?? "");
}

/** False if either text is not a network. */
export function overlap(a: string, b: string): boolean {
  const [one, other] = [parseNetwork(a), parseNetwork(b)];
  return one !== undefined && other !== undefined && networksOverlap(one, other);
}

/** False for text that is not an address. */
export function isWithin(address: string, networks: readonly string[]): boolean {
  const parsed = parseAddress(address);
  if (parsed === undefined) return false;
  return networks.some((each) => {
    const network = parseNetwork(each);
    return network !== undefined && networkContains(network, parsed);
  });
}
