// The DNS domains of an organization: of its names, and of the addresses in its networks. Pure.

import { parseNetwork } from "../../base/ip.ts";
import { domainOf } from "../files/hosts.ts";

export const reverse4 = ".in-addr.arpa";
export const reverse6 = ".ip6.arpa";

/** The domains that an organization's nodes have names in: its own, and those of its networks' addresses. */
export function domainsOf(slug: string, networks: readonly string[]): string[] {
  return [domainOf(slug), ...networks.flatMap(reverseZones)];
}

/** The widest networks whose reverse zones are served: wider ones are more of the internet than an overlay needs. */
const widest = { 4: 8, 6: 16 };

/**
 * The zones of exactly these addresses: in steps of 8 bits (IPv4) or 4 bits (IPv6), so 10.64.0.0/10 has 64 zones.
 * systemd-resolved takes 256 domains for each interface.
 */
export function reverseZones(text: string): string[] {
  const network = parseNetwork(text);
  if (network === undefined || network.prefix < widest[network.family]) return [];
  const { family, prefix, value } = network;
  const [bits, step] = family === 4 ? [32, 8] : [128, 4];
  const zoneBits = Math.ceil(prefix / step) * step;
  const first = value >> BigInt(bits - zoneBits);
  return Array.from({ length: 2 ** (zoneBits - prefix) }, (_, index) => {
    const digits = zoneBits / step;
    const parts = Array.from({ length: digits }, (_unused, at) => {
      const part = ((first + BigInt(index)) >> BigInt(at * step)) & BigInt(2 ** step - 1);
      return part.toString(family === 4 ? 10 : 16);
    });
    return `${parts.join(".")}${family === 4 ? reverse4 : reverse6}`;
  });
}
