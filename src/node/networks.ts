// Networks of the overlay as this host compares them, "10.77.0.0/16".

import { holdsNetwork, parseNetwork } from "../pki/networks.ts";

/** Two networks overlap exactly if one of them holds the other. Throws bad_request for what is no network. */
export function networksOverlap(a: string, b: string): boolean {
  const [one, other] = [parseNetwork(a), parseNetwork(b)];
  return holdsNetwork(one, other) || holdsNetwork(other, one);
}
