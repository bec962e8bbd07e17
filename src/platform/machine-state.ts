// The present state of this machine: interfaces, networks, routes, gateways, name servers and ports. Reads the
// system's tables; changes nothing.

import { networkInterfaces } from "node:os";
import { addressFromBytes, bits, formatAddress, makeNetwork, parseAddress } from "../base/ip.ts";
import { readBytes } from "../base/open-file.ts";
import { readKernel, type Kernel } from "./network/kernel.ts";
import { existsSync } from "node:fs";

export type MachineState = {
  /** Names of all interfaces, with or without addresses. Linux only: elsewhere an engine cannot take an existing name. */
  interfaces: readonly string[];
  /** Addresses of interfaces with their prefix lengths, "192.168.1.20/24"; without those of the loopback. */
  addresses: readonly {
    device: string;
    address: string;
    /** An IPv6 address that was set by hand, not by a router: the kernel made a route to its network. Linux only. */
    isFixed?: true;
  }[];
  /** The kernel's routes, "192.168.1.0/24", without default routes. Linux only. */
  routes: readonly { device: string; network: string }[];
  /** Addresses of default gateways. Linux only: elsewhere they lie in a network of `addresses`, nearly always. */
  gateways: readonly string[];
  nameServers: readonly string[];
  /** Whether the kernel can open IPv6 sockets. */
  hasIpv6: boolean;
  /** Whether an engine chooses the name of its interface. macOS numbers them itself. */
  namesInterfaces: boolean;
  kernel: Kernel;
  /** Ports that programs have taken. Read on demand, because a busy server has many. Linux only. */
  sockets(): readonly Socket[];
};

export type Socket = {
  protocol: "udp" | "tcp";
  /** Undefined: all addresses. */
  address: string | undefined;
  port: number;
};

/** The others have the name servers behind systemd-resolved and behind a local server of NetworkManager. */
const resolverFiles = [
  "/etc/resolv.conf",
  "/run/systemd/resolve/resolv.conf",
  "/run/NetworkManager/no-stub-resolv.conf",
];

export function machineState(): MachineState {
  const table4 = parseRoutes4(readTable("/proc/net/route"));
  const table6 = parseRoutes6(readTable("/proc/net/ipv6_route"));
  const fixed = new Set(parseFixed6(readTable("/proc/net/if_inet6")));
  return {
    interfaces: parseInterfaces(readTable("/proc/self/net/dev")),
    addresses: Object.entries(networkInterfaces()).flatMap(([device, addresses = []]) =>
      addresses.flatMap(({ cidr, internal }) =>
        internal || cidr === null
          ? []
          : [
              {
                device,
                address: cidr,
                ...(fixed.has(`${device} ${cidr}`) ? { isFixed: true as const } : {}),
              },
            ],
      ),
    ),
    routes: [...table4.routes, ...table6.routes],
    gateways: [...table4.gateways, ...table6.gateways],
    nameServers: [...new Set(resolverFiles.flatMap((path) => parseNameServers(readTable(path))))],
    hasIpv6: kernelHasIpv6(),
    namesInterfaces: process.platform !== "darwin",
    kernel: readKernel(),
    sockets: () =>
      (["udp", "tcp"] as const).flatMap((protocol) =>
        ["", "6"].flatMap((family) => parseSockets(protocol, readTable(`/proc/net/${protocol}${family}`))),
      ),
  };
}

/** Whether an interface of this name exists, with or without addresses. Linux only: elsewhere it returns false. */
export function hasInterface(device: string): boolean {
  return parseInterfaces(readTable("/proc/self/net/dev")).includes(device);
}

/** `/proc` is on Linux only. */
function readTable(path: string): string {
  try {
    return readBytes(path).toString("latin1");
  } catch {
    return "";
  }
}

/** Lines of /proc/net/dev: "  eth0: 1234 …", below two lines of titles. */
function parseInterfaces(table: string): string[] {
  return table.split("\n").flatMap((line) => /^\s*([^\s:|]+):/.exec(line)?.[1] ?? []);
}

type RouteTable = Pick<MachineState, "routes" | "gateways">;

/** Two routes to the halves of all addresses stand for a default route: VPNs use them to leave the real one in place. */
const longestDefault = 1;

/** Lines of /proc/net/route: device, destination and gateway (hexadecimal, little-endian), …, mask at column 8. */
export function parseRoutes4(table: string): RouteTable {
  const routes: { device: string; network: string }[] = [];
  const gateways: string[] = [];
  for (const line of table.split("\n").slice(1)) {
    const [device = "", destination = "", gateway = "", , , , , mask = ""] = line.trim().split(/\s+/);
    if (![destination, gateway, mask].every((each) => /^[0-9A-F]{8}$/i.test(each))) continue;
    const prefix = Number.parseInt(mask, 16).toString(2).replaceAll("0", "").length;
    if (prefix > longestDefault)
      routes.push({ device, network: makeNetwork(littleEndian(destination), prefix).text });
    else if (prefix === 0 && gateway !== "00000000") gateways.push(formatAddress(littleEndian(gateway)));
  }
  return { routes, gateways };
}

/** Entries of the kernel itself: refused, local and cached ones, and addresses of anycast. */
const notRoutes = 0x0200 | 0x01000000 | 0x00100000;
const isLocalEntry = 0x80000000;

/** Lines of /proc/net/ipv6_route: destination, prefix, source, prefix, gateway, metric, …, flags, device. */
export function parseRoutes6(table: string): RouteTable {
  const routes: { device: string; network: string }[] = [];
  const gateways: string[] = [];
  for (const line of table.split("\n")) {
    const columns = line.trim().split(/\s+/);
    const [destination = "", length = "", , , gateway = ""] = columns;
    const flags = Number.parseInt(columns.at(-2) ?? "", 16);
    const device = columns.at(-1) ?? "";
    if (![destination, gateway].every((each) => /^[0-9a-f]{32}$/.test(each)) || Number.isNaN(flags)) continue;
    if (device === "lo" || (flags & notRoutes) !== 0 || flags >= isLocalEntry) continue;
    const prefix = Number.parseInt(length, 16);
    // Each interface has routes to its own link, and to groups.
    if (/^(fe[89ab]|ff)/.test(destination)) continue;
    if (prefix > longestDefault)
      routes.push({ device, network: makeNetwork(bigEndian(destination), prefix).text });
    else if (prefix === 0 && !/^0+$/.test(gateway)) gateways.push(formatAddress(bigEndian(gateway)));
  }
  return { routes, gateways };
}

const isPermanent = 0x80;

/** Lines of /proc/net/if_inet6: address, index, prefix, scope, flags, device. Returns "eth0 fd00::1/64". */
export function parseFixed6(table: string): string[] {
  return table.split("\n").flatMap((line) => {
    const [hex = "", , length = "", , flags = "", device = ""] = line.trim().split(/\s+/);
    if (!/^[0-9a-f]{32}$/.test(hex) || (Number.parseInt(flags, 16) & isPermanent) === 0) return [];
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

const listens = "0A";

/** Lines of /proc/net/udp and the like: number, address:port (words of 32 bits, little-endian), …, state. */
export function parseSockets(protocol: Socket["protocol"], table: string): Socket[] {
  return table.split("\n").flatMap((line) => {
    const [, local = "", , state] = line.trim().split(/\s+/);
    const [, hex, port] = /^([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})$/i.exec(local) ?? [];
    if (hex === undefined || port === undefined || (protocol === "tcp" && state !== listens)) return [];
    const words = hex.match(/.{8}/g) ?? [];
    const bytes = words.flatMap((word) => [...Buffer.from(word, "hex").reverse()]);
    const address = addressFromBytes(bytes.length * 8 === bits(6) ? unmapped(bytes) : bytes);
    const text = address.value === 0n ? undefined : formatAddress(address);
    return [{ protocol, address: text, port: Number.parseInt(port, 16) }];
  });
}

/** The four bytes of ::ffff:192.0.2.1. */
function unmapped(bytes: number[]): number[] {
  const isMapped = bytes.slice(0, 10).every((byte) => byte === 0) && bytes[10] === 255 && bytes[11] === 255;
  return isMapped ? bytes.slice(12) : bytes;
}

// Whether the kernel of this machine knows IPv6 at all. Without addresses, or with the sysctl disable_ipv6, it still does.

/** A Linux that was started with ipv6.disable=1 has no such file. Other systems always know IPv6. */
export const kernelHasIpv6 = (): boolean => process.platform !== "linux" || existsSync("/proc/net/if_inet6");
