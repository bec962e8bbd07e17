// The sealed IPv6 network of an organization (docs/design/sealed.md): no CA of a control plane may certify its addresses.
// Both network and addresses follow from hashes that a signer has checked, so a control plane chooses none of them.

import {
  addressFromBytes,
  formatAddress,
  makeNetwork,
  networksOverlap,
  parseNetwork,
  parseNetworks,
  type Network,
} from "../../base/ip.ts";

export const sealedPrefix = 64;

/** Unique local addresses, fd00::/8 (RFC 4193). */
export const uniqueLocal: Network = makeNetwork(addressFromBytes([0xfd, ...zeros(15)]), 8);

function zeros(count: number): number[] {
  return Array.from({ length: count }, () => 0);
}

const bytesOf = (hash: string, count: number): number[] => [...Buffer.from(hash, "hex").subarray(0, count)];

/** The network as text. `authority`: the fingerprint of the offline CA of the first seal. Later seals keep the network. */
export const sealedNetworkOf = (authority: string): string =>
  makeNetwork(addressFromBytes([0xfd, ...bytesOf(authority, 7), ...zeros(8)]), sealedPrefix).text;

/** The address of a node. `key`: the hash of its host key, so that a certificate for another key never has this address. */
export function sealedAddressOf(network: string, key: string): string {
  const { value } = addressFromBytes([...zeros(8), ...bytesOf(key, 8)]);
  return formatAddress({ family: 6, value: (parseNetwork(network)?.value ?? 0n) | value });
}

/** The first of these networks, default routes aside, in which sealed addresses would lie too. */
export function overlapWith(network: string, others: readonly string[]): string | undefined {
  const sealed = parseNetwork(network);
  if (sealed === undefined) return undefined;
  return parseNetworks(others).find((other) => other.prefix > 0 && networksOverlap(sealed, other))?.text;
}
