// The present state of this machine: interfaces, networks, routes, gateways, name servers and ports. Reads the
// system's tables; changes nothing.

import { networkInterfaces } from "node:os";
import { readBytes } from "../base/open-file.ts";
import { readKernel, type Kernel } from "./network/kernel.ts";
import {
  parseFixed6,
  parseInterfaces,
  parseNameServers,
  parseRoutes4,
  parseRoutes6,
  parseSockets,
  type Socket,
} from "./network/proc-tables.ts";
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
  /** Interfaces of default routes by family, the preferred one first. Linux only. */
  defaultDevices: Readonly<Record<4 | 6, readonly string[]>>;
  nameServers: readonly string[];
  /** Whether the kernel can open IPv6 sockets. */
  hasIpv6: boolean;
  /** Whether an engine chooses the name of its interface. macOS numbers them itself. */
  namesInterfaces: boolean;
  kernel: Kernel;
  /** Ports that programs have taken. Read on demand, because a busy server has many. Linux only. */
  sockets(): readonly Socket[];
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
    defaultDevices: { 4: table4.defaults, 6: table6.defaults },
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

/**
 * Whether the kernel knows IPv6 at all; without addresses, or with the sysctl disable_ipv6, it still does. A Linux that was
 * started with ipv6.disable=1 has no such file. Other systems always know IPv6.
 */
const kernelHasIpv6 = (): boolean => process.platform !== "linux" || existsSync("/proc/net/if_inet6");
