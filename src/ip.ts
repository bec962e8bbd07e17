// Arithmetic of overlay networks and addresses, IPv4 and IPv6. A node has one host number in its organization: address =
// network + host, in both families. No database here: the server records which node has which host number.

import ipaddr from "ipaddr.js";

export type Address = { family: 4 | 6; value: bigint };
export type Network = { family: 4 | 6; base: bigint; prefix: number; text: string };

/** Host numbers stay below this in wide IPv6 networks, so that they are exact as JavaScript numbers. */
const widestHost = 2 ** 48;

/** An address without prefix or zone, not IPv4-mapped; undefined for other text. */
export function parseAddress(text: string): Address | undefined {
  if (ipaddr.IPv4.isValidFourPartDecimal(text)) {
    return { family: 4, value: valueOf(ipaddr.IPv4.parse(text).toByteArray()) };
  }
  if (!text.includes(":") || text.includes("%") || !ipaddr.IPv6.isValid(text)) return undefined;
  const parsed = ipaddr.IPv6.parse(text);
  if (parsed.isIPv4MappedAddress()) return undefined;
  return { family: 6, value: valueOf(parsed.toByteArray()) };
}

/** The canonical text (RFC 5952 for IPv6). */
export function formatAddress(address: Address): string {
  const bytes = bytesOf(address);
  return address.family === 4 ? bytes.join(".") : new ipaddr.IPv6(bytes).toRFC5952String();
}

/** `10.77.0.0/16`; undefined unless it is an address and a prefix length with no host bits set. */
export function parseNetwork(text: string): Network | undefined {
  const match = /^([^/]+)\/(\d{1,3})$/.exec(text);
  const address = match?.[1] === undefined ? undefined : parseAddress(match[1]);
  const prefix = Number(match?.[2]);
  if (address === undefined || prefix > bits(address.family)) return undefined;
  if ((address.value & (size(address.family, prefix) - 1n)) !== 0n) return undefined;
  return {
    family: address.family,
    base: address.value,
    prefix,
    text: `${formatAddress(address)}/${prefix}`,
  };
}

/** The same network with its host bits cleared. */
export function maskNetwork(text: string): string | undefined {
  const [head = "", tail = ""] = text.split("/");
  const address = parseAddress(head);
  if (address === undefined || !/^\d{1,3}$/.test(tail) || Number(tail) > bits(address.family))
    return undefined;
  const hostBits = size(address.family, Number(tail)) - 1n;
  return `${formatAddress({ family: address.family, value: address.value - (address.value & hostBits) })}/${Number(tail)}`;
}

export function networkContains(network: Network, address: Address): boolean {
  return (
    network.family === address.family &&
    address.value >= network.base &&
    address.value < network.base + size(network.family, network.prefix)
  );
}

export function networksOverlap(a: Network, b: Network): boolean {
  return (
    networkContains(a, { family: b.family, value: b.base }) ||
    networkContains(b, { family: a.family, value: a.base })
  );
}

/** The highest host number of a node: network address and broadcast address are not used. */
export function lastHost(network: Network): number {
  const last = size(network.family, network.prefix) - 2n;
  return last > BigInt(widestHost) ? widestHost : Math.max(0, Number(last));
}

/** The host number of an address; undefined if no node of this network can have it. */
export function hostOf(network: Network, address: Address): number | undefined {
  if (!networkContains(network, address)) return undefined;
  const host = address.value - network.base;
  return host >= 1n && host <= BigInt(lastHost(network)) ? Number(host) : undefined;
}

/** The address without prefix: `10.77.0.5`. */
export function addressOf(network: Network, host: number): string {
  return formatAddress({ family: network.family, value: network.base + BigInt(host) });
}

export function bits(family: 4 | 6): number {
  return family === 4 ? 32 : 128;
}

/** How many addresses a prefix of this length holds. */
export function size(family: 4 | 6, prefix: number): bigint {
  return 1n << BigInt(bits(family) - prefix);
}

function valueOf(bytes: number[]): bigint {
  return bytes.reduce((value, byte) => (value << 8n) | BigInt(byte), 0n);
}

function bytesOf({ family, value }: Address): number[] {
  return Array.from({ length: bits(family) / 8 }, (_, index) =>
    Number((value >> BigInt(bits(family) - 8 * (index + 1))) & 0xffn),
  );
}
