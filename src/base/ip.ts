// Arithmetic of overlay networks and addresses, IPv4 and IPv6. A node has one host number in its organization: address =
// network + host, in both families. No database here: the server records which node has which host number.

export type Address = { family: 4 | 6; value: bigint };
/**
 * An address and the prefix length of its network. In a certificate the address has host bits: `10.77.0.5/16`; elsewhere
 * it has none. `text` is its canonical form.
 */
export type Network = Address & { prefix: number; text: string };

/** Loaded late: commands that run every minute meet only the usual spellings. */
const ipaddr = (): typeof import("ipaddr.js") => require("ipaddr.js");

/** The highest host number in a wide IPv6 network, so that host numbers are exact as JavaScript numbers. */
const widestHost = 2 ** 48;

/** An address without prefix or zone, not IPv4-mapped; undefined for other text. */
export function parseAddress(text: string): Address | undefined {
  const usual = parseUsualSpelling(text);
  if (usual !== undefined) return usual;
  if (ipaddr().IPv4.isValidFourPartDecimal(text))
    return addressFromBytes(ipaddr().IPv4.parse(text).toByteArray());
  if (!text.includes(":") || text.includes("%") || !ipaddr().IPv6.isValid(text)) return undefined;
  const parsed = ipaddr().IPv6.parse(text);
  return parsed.isIPv4MappedAddress() ? undefined : addressFromBytes(parsed.toByteArray());
}

/** Parses the usual spellings, ten times as fast: a machine may know 50,000 names. Undefined for all other texts. */
function parseUsualSpelling(text: string): Address | undefined {
  const four = /^(\d|[1-9]\d{1,2})\.(\d|[1-9]\d{1,2})\.(\d|[1-9]\d{1,2})\.(\d|[1-9]\d{1,2})$/.exec(text);
  if (four !== null) {
    const [, a, b, c, d] = four.map(Number);
    if (a === undefined || b === undefined || c === undefined || d === undefined) return undefined;
    if (Math.max(a, b, c, d) > 255) return undefined;
    return { family: 4, value: BigInt(((a * 256 + b) * 256 + c) * 256 + d) };
  }
  // At most seven groups around one gap. The first one is not zero, so the address is not IPv4-mapped.
  if (!/^[1-9a-f][0-9a-f]{2,3}(:[0-9a-f]{1,4}){0,5}::([0-9a-f]{1,4}(:[0-9a-f]{1,4}){0,5})?$/.test(text))
    return undefined;
  const [head = "", tail = ""] = text.split("::");
  const [before, after] = [head, tail].map((part) =>
    part === "" ? [] : part.split(":").map((group) => group.padStart(4, "0")),
  );
  const groups = (before?.length ?? 0) + (after?.length ?? 0);
  if (before === undefined || after === undefined || groups > 7) return undefined;
  const digits = `${before.join("")}${"0000".repeat(8 - groups)}${after.join("")}`;
  return { family: 6, value: BigInt(`0x${digits}`) };
}

/** 4 or 16 bytes in network order. */
export function addressFromBytes(bytes: ArrayLike<number>): Address {
  let value = 0n;
  for (const byte of Array.from(bytes)) value = (value << 8n) | BigInt(byte);
  return { family: bytes.length === 4 ? 4 : 6, value };
}

/** 4 or 16 bytes in network order. */
export function addressBytes({ family, value }: Address): number[] {
  return Array.from({ length: addressBits(family) / 8 }, (_, index) =>
    Number((value >> BigInt(addressBits(family) - 8 * (index + 1))) & 0xffn),
  );
}

/** The canonical text (RFC 5952 for IPv6). */
export function formatAddress(address: Address): string {
  const bytes = addressBytes(address);
  return address.family === 4 ? bytes.join(".") : new (ipaddr().IPv6)(bytes).toRFC5952String();
}

/** One spelling for each address; the text itself if it is none. */
export function canonicalAddress(text: string): string {
  const address = parseAddress(text);
  return address === undefined ? text : formatAddress(address);
}

/** A network with its canonical text. Host bits of the address are kept. */
export function makeNetwork({ family, value }: Address, prefix: number): Network {
  return { family, value, prefix, text: `${formatAddress({ family, value })}/${prefix}` };
}

/** `10.77.0.5/16`: host bits are kept. Undefined unless it is an address and a prefix length. */
export function parseAddressInNetwork(text: string): Network | undefined {
  const match = /^([^/]{1,45})\/(\d{1,3})$/.exec(text);
  const address = match?.[1] === undefined ? undefined : parseAddress(match[1]);
  const prefix = Number(match?.[2]);
  return address === undefined || prefix > addressBits(address.family)
    ? undefined
    : makeNetwork(address, prefix);
}

/** `10.77.0.0/16`; undefined unless it is an address and a prefix length with no host bits set. */
export function parseNetwork(text: string): Network | undefined {
  const network = parseAddressInNetwork(text);
  return network === undefined || (network.value & hostMask(network)) !== 0n ? undefined : network;
}

/** The same network with its host bits cleared. */
export function maskNetwork(text: string): string | undefined {
  const network = parseAddressInNetwork(text);
  if (network === undefined) return undefined;
  const { family, value, prefix } = network;
  return makeNetwork({ family, value: value - (value & hostMask(network)) }, prefix).text;
}

/** Whether the address is in the network. Host bits of the network do not count. */
export function networkContains({ family, value, prefix }: Network, address: Address): boolean {
  const hostBits = BigInt(addressBits(family) - prefix);
  return family === address.family && value >> hostBits === address.value >> hostBits;
}

/** Whether all addresses of `inner` are in `outer`. */
export function holdsNetwork(outer: Network, inner: Network): boolean {
  return outer.prefix <= inner.prefix && networkContains(outer, inner);
}

/** Whether any address is in both. */
export function networksOverlap(a: Network, b: Network): boolean {
  return networkContains(a, b) || networkContains(b, a);
}

/** Whether the text is an address in one of these networks. Host bits of the networks do not count. */
export function isWithin(text: string, networks: readonly Network[]): boolean {
  const address = parseAddress(text);
  return address !== undefined && networks.some((network) => networkContains(network, address));
}

/** Like networksOverlap, of texts. False if either is not a network. */
export function networkTextsOverlap(a: string, b: string): boolean {
  const one = parseNetwork(a);
  const other = parseNetwork(b);
  return one !== undefined && other !== undefined && networksOverlap(one, other);
}

/** The networks among these texts; other texts are left out. */
export const parseNetworks = (texts: readonly string[]): Network[] =>
  texts.flatMap((text) => parseNetwork(text) ?? []);

/** A function that parses the networks when it is first called: few commands need them. */
function parsedLater(texts: readonly string[]): () => readonly Network[] {
  let networks: readonly Network[] | undefined;
  return () => (networks ??= parseNetworks(texts));
}

/** Networks whose addresses are not part of the internet, but may be those of machines. */
export const privateNetworks = parsedLater([
  "10.0.0.0/8",
  "100.64.0.0/10",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "fc00::/7",
]);

/**
 * Addresses at which cloud providers control their machines or give them secrets: of Azure (which looks public), Alibaba, Oracle,
 * Amazon (metadata, names, time, pods), Google, Oracle and Scaleway. All of them also use 169.254.0.0/16, which is in
 * `specialNetworks`.
 */
export const providerAddresses = [
  "168.63.129.16",
  "100.100.100.200",
  "192.0.0.192",
  "fd00:ec2::254",
  "fd00:ec2::253",
  "fd00:ec2::123",
  "fd00:ec2::23",
  "fd20:ce::254",
  "fd00:c1::a9fe:a9fe",
  "fd00:42::42",
];
export const providerNetworks = parsedLater(
  providerAddresses.map((each) => `${each}/${each.includes(":") ? 128 : 32}`),
);

/** The parts of `whole` that are in none of `holes`, as few networks as possible. */
function subtractNetworks(whole: Network, holes: readonly Network[]): Network[] {
  const inside = holes.filter((each) => networksOverlap(each, whole));
  if (inside.length === 0) return [whole];
  if (inside.some((each) => holdsNetwork(each, whole))) return [];
  const { family, value, prefix } = whole;
  const upper = value + addressCount(family, prefix + 1);
  return [value, upper].flatMap((half) =>
    subtractNetworks(makeNetwork({ family, value: half }, prefix + 1), inside),
  );
}

/** All addresses of the internet, without private and special ones, and without those in `except`. */
export function internetNetworks(except: readonly string[]): string[] {
  const holes = [...privateNetworks(), ...specialNetworks(), ...parseNetworks(except)];
  return parseNetworks(["0.0.0.0/0", "2000::/3"]).flatMap((whole) =>
    subtractNetworks(whole, holes).map(({ text }) => text),
  );
}

/** Whether the whole network is in one of `privateNetworks`: routes within these do not add up to a default route. */
export function isPrivate(network: Network): boolean {
  return privateNetworks().some((each) => holdsNetwork(each, network));
}

/** Networks that every machine treats in a special way: this host, loopback, link-local, multicast, reserved. */
export const specialNetworks = parsedLater([
  "0.0.0.0/8",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "224.0.0.0/4",
  "240.0.0.0/4",
  "::/8",
  "fe80::/10",
  "ff00::/8",
]);

/** The special network that this one overlaps, if any. ::/8 includes 64:ff9b::/96, which reaches all of IPv4 (RFC 6052). */
export function specialNetwork(network: Network): string | undefined {
  return specialNetworks().find((each) => networksOverlap(each, network))?.text;
}

/**
 * Like specialNetwork, for a node's underlay address. A name that means the asking machine itself is special too; undefined
 * for other names.
 */
export function specialHost(host: string): string | undefined {
  if (/((^|\.)localhost(\.localdomain)?\.?|^ip6-(localhost|loopback))$/i.test(host)) return host;
  const address = parseAddress(host);
  return address === undefined
    ? undefined
    : specialNetwork(makeNetwork(address, addressBits(address.family)));
}

/** The highest host number of a node: network address and broadcast address are not used. */
export function lastHost(network: Network): number {
  const last = addressCount(network.family, network.prefix) - 2n;
  return last > BigInt(widestHost) ? widestHost : Math.max(0, Number(last));
}

/** The host number of an address; undefined if no node of this network can have it. */
export function hostOf(network: Network, address: Address): number | undefined {
  if (!networkContains(network, address)) return undefined;
  const host = address.value - network.value;
  return host >= 1n && host <= BigInt(lastHost(network)) ? Number(host) : undefined;
}

/** The address without prefix: `10.77.0.5`. */
export function addressOf(network: Network, host: number): string {
  return formatAddress({ family: network.family, value: network.value + BigInt(host) });
}

/** The address of a node with this host number in another network of its organization; undefined if that one is too small. */
export function addressInOther(network: Network, host: number): string | undefined {
  return host > lastHost(network) ? undefined : addressOf(network, host);
}

/** The length of an address, in bits. */
export function addressBits(family: 4 | 6): number {
  return family === 4 ? 32 : 128;
}

/** How many addresses a prefix of this length holds. */
export function addressCount(family: 4 | 6, prefix: number): bigint {
  return 1n << BigInt(addressBits(family) - prefix);
}

function hostMask({ family, prefix }: Network): bigint {
  return addressCount(family, prefix) - 1n;
}

/** `192.0.2.1:4242`, `[2001:db8::1]:4242`, `example.org:4242`. */
export function joinHostPort(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** A host and its port. An IPv6 address without brackets has no port. */
const beforePort = /^(\[.*\]|[^:]*):(\d+)$/;

/** The host of `192.0.2.1:4242`, `[2001:db8::1]:4242` or `example.org:4242`; the text without brackets if it has no port. */
export function withoutPort(hostPort: string): string {
  return (beforePort.exec(hostPort)?.[1] ?? hostPort).replace(/^\[(.*)\]$/, "$1");
}

/** The port of such a text; NaN if it has none. */
export const portOf = (hostPort: string): number => Number(beforePort.exec(hostPort)?.[2] ?? Number.NaN);

/** Like `specialNetworks`, but with ::/16 instead of ::/8: an address of NAT64 (64:ff9b::/96) may be another machine's. */
const notUnicast = parsedLater([
  "0.0.0.0/8",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "224.0.0.0/3",
  "::/16",
  "fe80::/10",
  "ff00::/8",
]);

/** An address outside the overlay. */
type Underlay = { host: string; port: number; isPrivate: boolean };

/** An address and port at which another machine may be; undefined for names, and for addresses that no other machine has. */
export function parseUnderlay(hostPort: string): Underlay | undefined {
  const port = portOf(hostPort);
  const address = parseAddress(withoutPort(hostPort));
  if (address === undefined || !(port >= 1 && port <= 65_535)) return undefined;
  if (notUnicast().some((each) => networkContains(each, address))) return undefined;
  const network = makeNetwork(address, addressBits(address.family));
  return { host: formatAddress(address), port, isPrivate: isPrivate(network) };
}

/** The IPv4 address of ::ffff:192.0.2.1, as which a dual-stack socket reports IPv4 peers; other addresses as they are. */
export function unmapped(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, "");
}

/**
 * The network of a client, for limits: one IPv4 address, or an IPv6 /64. A household or an office has one of these, and
 * a host can use any address of its /64. A wider IPv4 network would hold strangers, customers of the same provider.
 */
export function networkOf(address: string): string {
  const parsed = address.includes(":") ? parseAddress(address) : undefined;
  if (parsed === undefined) return address;
  return `${formatAddress({ family: 6, value: (parsed.value >> 64n) << 64n })}/64`;
}
