// A sealed IPv6 network for tests, and addresses of nodes in it.

import { addressFromBytes, formatAddress, makeNetwork, parseNetwork } from "../../src/base/ip.ts";

const bytesOf = (hash: string, count: number): number[] => [...Buffer.from(hash, "hex").subarray(0, count)];
const zeros: number[] = Array.from({ length: 8 }, () => 0);

/** `authority`: the fingerprint of the offline CA. */
export const sealedNetworkOf = (authority: string): string =>
  makeNetwork(addressFromBytes([0xfd, ...bytesOf(authority, 7), ...zeros]), 64).text;

/** `key`: the hash of the node's host key. */
export function sealedAddressOf(network: string, key: string): string {
  const { value } = addressFromBytes([...zeros, ...bytesOf(key, 8)]);
  return formatAddress({ family: 6, value: (parseNetwork(network)?.value ?? 0n) | value });
}
