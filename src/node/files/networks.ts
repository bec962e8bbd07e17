// Networks of the overlay as this host compares them, "10.77.0.0/16".

import { join } from "node:path";
import { readTextIfThere } from "../../files.ts";
import { decodeBundle } from "../../pki/nebula.ts";
import { holdsNetwork, parseNetwork } from "../../pki/networks.ts";
import type { Organization } from "./organizations.ts";

/** Two networks overlap exactly if one of them holds the other. Throws bad_request for what is no network. */
export function networksOverlap(a: string, b: string): boolean {
  const [one, other] = [parseNetwork(a), parseNetwork(b)];
  return holdsNetwork(one, other) || holdsNetwork(other, one);
}

/** The networks that its engine routes: the organization's, and where it has one the IPv6 network beside it. */
export function overlayNetworks({ config, directory }: Organization): string[] {
  const certificates = decodeBundle(readTextIfThere(join(directory, "host.crt")) ?? "");
  const addresses = certificates.flatMap((certificate) => certificate.networks);
  return [config.network, ...new Set(addresses.filter((address) => address.includes(":")))];
}
