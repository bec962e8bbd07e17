// Validates the overlay networks of an organization: their form, and that both have room for the same nodes.

import { AppError } from "../../base/errors.ts";
import { lastHost, parseNetwork } from "../../base/ip.ts";

export const narrowNetwork6 = "The IPv6 network must have room for as many nodes as the IPv4 network.";

/** A node has the same host number in both networks. Throws validation_failed. */
export function checkRoom(network: string, network6: string | undefined): void {
  if (network6 === undefined || !isNarrower(network6, network)) return;
  throw new AppError("validation_failed", "The request does not hold what it should.", {
    errors: { network6: [narrowNetwork6] },
  });
}

/** Whether the IPv6 network `text6` has room for fewer nodes than the IPv4 network. */
export function isNarrower(text6: string, text: string): boolean {
  const [network6, network] = [parseNetwork(text6), parseNetwork(text)];
  return network6 !== undefined && network !== undefined && lastHost(network6) < lastHost(network);
}
