// Networks of the overlay as this host has them: always those of the certificates, which were verified. What a control
// plane merely says of its network would let one organization keep another from starting.

import { join } from "node:path";
import { readTextIfThere } from "../../files.ts";
import { maskNetwork, networksOverlap, parseNetwork } from "../../ip.ts";
import { decodeBundle } from "../../pki/nebula.ts";

/** The node's addresses with their prefix lengths, "10.77.0.5/16"; two certificates may hold the same ones. */
export function networksIn(hostCrt: string): string[] {
  if (hostCrt === "") return [];
  return [...new Set(decodeBundle(hostCrt).flatMap(({ networks }) => networks))].sort();
}

/** The networks that an engine with these certificates routes, "10.77.0.0/16". */
export function maskedNetworks(hostCrt: string): string[] {
  return [...new Set(networksIn(hostCrt).flatMap((each) => maskNetwork(each) ?? []))];
}

/** The networks of an organization that is registered here. */
export function overlayNetworks(directory: string): string[] {
  return maskedNetworks(readTextIfThere(join(directory, "host.crt")) ?? "");
}

/** False also for what is no network. */
export function doOverlap(a: string, b: string): boolean {
  const [one, other] = [parseNetwork(a), parseNetwork(b)];
  return one !== undefined && other !== undefined && networksOverlap(one, other);
}
