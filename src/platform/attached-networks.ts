// The networks that this machine is attached to, its default gateways, and its name servers. Reads the system's tables;
// changes nothing.

import { networkInterfaces } from "node:os";
import { parseAddress } from "../ip.ts";
import { readBytes } from "../open-file.ts";

/**
 * `address` with its prefix length, "192.168.1.20/24"; a default gateway and a name server have the prefix of one address.
 * A name server has no `device`.
 */
export type AttachedNetwork = { device: string; address: string; isNameServer?: true };

/** The second has the name servers behind systemd-resolved. */
const resolverFiles = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

export function attachedNetworks(): AttachedNetwork[] {
  const interfaces = Object.entries(networkInterfaces()).flatMap(([device, addresses = []]) =>
    addresses.flatMap(({ cidr, internal }) => (internal || cidr === null ? [] : [{ device, address: cidr }])),
  );
  return [
    ...interfaces,
    ...parseGateways4(readTable("/proc/net/route")),
    ...parseGateways6(readTable("/proc/net/ipv6_route")),
    ...resolverFiles.flatMap((path) => parseNameServers(readTable(path))),
  ];
}

/** Whether an interface of this name exists, with or without addresses. Linux only: elsewhere it returns false. */
export function hasInterface(device: string): boolean {
  return readTable("/proc/self/net/dev")
    .split("\n")
    .some((line) => line.trimStart().startsWith(`${device}:`));
}

/** `/proc` is on Linux only. Elsewhere a gateway counts as far as it lies in an attached network, which is nearly always. */
function readTable(path: string): string {
  try {
    return readBytes(path).toString("latin1");
  } catch {
    return "";
  }
}

/** Lines of /proc/net/route: device, destination and gateway (hexadecimal, little-endian), …, mask at column 8. */
export function parseGateways4(table: string): AttachedNetwork[] {
  return table.split("\n").flatMap((line) => {
    const [device = "", destination, gateway = "", , , , , mask] = line.trim().split(/\s+/);
    if (destination !== "00000000" || mask !== "00000000" || !/^(?!0{8})[0-9A-F]{8}$/i.test(gateway))
      return [];
    return [{ device, address: `${[...Buffer.from(gateway, "hex")].reverse().join(".")}/32` }];
  });
}

/** Lines of /proc/net/ipv6_route: destination, prefix, source, prefix, gateway, …, device at the end. */
export function parseGateways6(table: string): AttachedNetwork[] {
  return table.split("\n").flatMap((line) => {
    const columns = line.trim().split(/\s+/);
    const [destination = "", prefix, , , gateway = ""] = columns;
    if (!/^0{32}$/.test(destination) || prefix !== "00" || !/^(?!0{32})[0-9a-f]{32}$/.test(gateway))
      return [];
    return [{ device: columns.at(-1) ?? "", address: `${gateway.replace(/.{4}(?!$)/g, "$&:")}/128` }];
  });
}

/** resolv.conf(5). At most 16: the resolver uses three. */
export function parseNameServers(text: string): AttachedNetwork[] {
  const found = text.split("\n").flatMap((line): AttachedNetwork[] => {
    const [keyword, host = ""] = line.trim().split(/\s+/);
    const address = keyword === "nameserver" ? parseAddress(host) : undefined;
    if (address === undefined) return [];
    return [{ device: "", address: `${host}/${address.family === 4 ? 32 : 128}`, isNameServer: true }];
  });
  return found.slice(0, 16);
}
