// Reads the kernel's tables of interfaces, routes and sockets (proc(5)), and resolv.conf(5). Pure.

import { addressFromBytes, formatAddress, makeNetwork, parseAddress, type Address } from "../../base/ip.ts";

export type Socket = {
  protocol: "udp" | "tcp";
  /** Undefined: all addresses. */
  address: string | undefined;
  port: number;
};

/** Lines of /proc/net/dev: "  eth0: 1234 …", below two lines of titles. */
export function parseInterfaces(table: string): string[] {
  return table.split("\n").flatMap((line) => /^\s*([^\s:|]+):/.exec(line)?.[1] ?? []);
}

type RouteTable = {
  routes: { device: string; network: string }[];
  gateways: string[];
  /** Interfaces of default routes, halves of one first: the kernel prefers them. */
  defaults: string[];
};

/** Two routes to the halves of all addresses stand for a default route: VPNs use them to leave the real one in place. */
const longestDefault = 1;

/** Lines of /proc/net/route: device, destination and gateway (hexadecimal, little-endian), …, mask at column 8. */
export function parseRoutes4(table: string): RouteTable {
  const { routes, gateways, defaults }: RouteTable = { routes: [], gateways: [], defaults: [] };
  for (const line of table.split("\n").slice(1)) {
    const [device = "", destination = "", gateway = "", , , , , mask = ""] = line.trim().split(/\s+/);
    if (![destination, gateway, mask].every((each) => /^[0-9A-F]{8}$/i.test(each))) continue;
    // The number of ones, which does not depend on the order of the bytes.
    const prefix = Number.parseInt(mask, 16).toString(2).replaceAll("0", "").length;
    if (prefix > longestDefault)
      routes.push({ device, network: makeNetwork(littleEndian(destination), prefix).text });
    else noteDefault(defaults, device, prefix);
    if (prefix === 0 && gateway !== "00000000") gateways.push(formatAddress(littleEndian(gateway)));
  }
  return { routes, gateways, defaults };
}

/** Entries that are no routes: RTF_REJECT, RTF_CACHE, RTF_ANYCAST. */
const notRouteFlags = 0x0200 | 0x01000000 | 0x00100000;
/** RTF_LOCAL: an address of this machine. The highest bit, which `&` would make negative. */
const localFlag = 0x80000000;

/** Lines of /proc/net/ipv6_route: destination, prefix, source, prefix, gateway, metric, …, flags, device. */
export function parseRoutes6(table: string): RouteTable {
  const { routes, gateways, defaults }: RouteTable = { routes: [], gateways: [], defaults: [] };
  for (const line of table.split("\n")) {
    const columns = line.trim().split(/\s+/);
    const [destination = "", length = "", , , gateway = ""] = columns;
    const flags = Number.parseInt(columns.at(-2) ?? "", 16);
    const device = columns.at(-1) ?? "";
    if (![destination, gateway].every((each) => /^[0-9a-f]{32}$/.test(each)) || Number.isNaN(flags)) continue;
    if (device === "lo" || (flags & notRouteFlags) !== 0 || flags >= localFlag) continue;
    const prefix = Number.parseInt(length, 16);
    // Each interface has routes to its own link, and to groups.
    if (/^(fe[89ab]|ff)/.test(destination)) continue;
    if (prefix > longestDefault)
      routes.push({ device, network: makeNetwork(bigEndian(destination), prefix).text });
    else noteDefault(defaults, device, prefix);
    if (prefix === 0 && !/^0+$/.test(gateway)) gateways.push(formatAddress(bigEndian(gateway)));
  }
  return { routes, gateways, defaults };
}

function noteDefault(defaults: string[], device: string, prefix: number): void {
  if (prefix > 0) defaults.unshift(device);
  else defaults.push(device);
}

/** IFA_F_PERMANENT: no router has given it a lifetime. */
const permanentFlag = 0x80;

/** Lines of /proc/net/if_inet6: address, index, prefix, scope, flags, device. Returns "eth0 fd00::1/64". */
export function parseFixed6(table: string): string[] {
  return table.split("\n").flatMap((line) => {
    const [hex = "", , length = "", , flags = "", device = ""] = line.trim().split(/\s+/);
    if (!/^[0-9a-f]{32}$/.test(hex) || (Number.parseInt(flags, 16) & permanentFlag) === 0) return [];
    return [`${device} ${formatAddress(bigEndian(hex))}/${Number.parseInt(length, 16)}`];
  });
}

const bigEndian = (hex: string) => addressFromBytes(Buffer.from(hex, "hex"));
const littleEndian = (hex: string) => addressFromBytes(Buffer.from(hex, "hex").reverse());

/** resolv.conf(5). At most 16: the resolver uses three. */
export function parseNameServers(text: string): string[] {
  const found = text.split("\n").flatMap((line) => {
    const [keyword, host = ""] = line.trim().split(/\s+/);
    const address = keyword === "nameserver" ? parseAddress(host) : undefined;
    return address === undefined ? [] : [formatAddress(address)];
  });
  return found.slice(0, 16);
}

/** TCP_LISTEN */
const listening = "0A";

/** Lines of /proc/net/udp and the like: number, address:port, …, state. */
export function parseSockets(protocol: Socket["protocol"], table: string): Socket[] {
  return table.split("\n").flatMap((line) => {
    const [, local = "", , state] = line.trim().split(/\s+/);
    const [, hex, port] = /^([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})$/i.exec(local) ?? [];
    if (hex === undefined || port === undefined || (protocol === "tcp" && state !== listening)) return [];
    const address = socketAddress(hex);
    const text = address.value === 0n ? undefined : formatAddress(address);
    return [{ protocol, address: text, port: Number.parseInt(port, 16) }];
  });
}

/**
 * The address in a table of sockets: words of 32 bits, little-endian on all supported machines. An IPv4 address in a socket of IPv6
 * (::ffff:192.0.2.1) becomes that of IPv4.
 */
export function socketAddress(hex: string): Address {
  const words = hex.match(/.{8}/g) ?? [];
  const bytes = words.flatMap((word) => [...Buffer.from(word, "hex").reverse()]);
  const isMapped =
    bytes.length === 16 &&
    bytes.slice(0, 10).every((byte) => byte === 0) &&
    bytes[10] === 255 &&
    bytes[11] === 255;
  return addressFromBytes(isMapped ? bytes.slice(12) : bytes);
}
