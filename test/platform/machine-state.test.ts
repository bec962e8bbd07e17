// What of this machine is in use, from the kernel's tables.

import { expect, test } from "bun:test";
import { createSocket } from "node:dgram";
import { networkInterfaces } from "node:os";
import { machineState } from "../../src/platform/machine-state.ts";
import {
  parseNameServers,
  parseRoutes4,
  parseRoutes6,
  parseSockets,
} from "../../src/platform/network/proc-tables.ts";

test("IPv4 routes and default gateways are read from the kernel's table", () => {
  const table = [
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT",
    "eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0",
    // Half of the internet, and a default route without a gateway.
    "tun0\t00000000\t0200000A\t0003\t0\t0\t0\t00000080\t0\t0\t0",
    "ppp0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0",
    "eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0",
    "wg0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0",
    "",
  ].join("\n");
  expect(parseRoutes4(table)).toEqual({
    routes: [
      { device: "eth0", network: "192.168.1.0/24" },
      { device: "wg0", network: "10.0.0.0/8" },
    ],
    gateways: ["192.168.1.1"],
    defaults: ["tun0", "eth0", "ppp0"],
  });
  expect(parseRoutes4("")).toEqual({ routes: [], gateways: [], defaults: [] });
});

test("IPv6 routes and default gateways are read from the kernel's table, without the kernel's own entries", () => {
  const none = "0".repeat(32);
  const gateway = "20010db8000000000000000000000001";
  const line = (to: string, prefix: string, via: string, flags: string, device: string) =>
    `${to} ${prefix} ${none} 00 ${via} 00000400 00000001 00000000 ${flags}     ${device}`;
  const table = [
    line(none, "00", gateway, "00000003", "eth0"),
    line(none, "00", none, "00200200", "lo"),
    line("20010db8000000000000000000000000", "40", none, "00000001", "eth0"),
    line("fd000000000000000000000000000000", "08", gateway, "00000003", "eth0"),
    line("fe800000000000000000000000000000", "40", none, "00000001", "eth0"),
    line("ff000000000000000000000000000000", "08", none, "00000001", "eth0"),
    line("20010db8000000000000000000000002", "80", none, "80200001", "eth0"),
  ].join("\n");
  expect(parseRoutes6(table)).toEqual({
    routes: [
      { device: "eth0", network: "2001:db8::/64" },
      { device: "eth0", network: "fd00::/8" },
    ],
    gateways: ["2001:db8::1"],
    defaults: ["eth0"],
  });
});

test("taken ports are read from the kernel's tables", () => {
  const udp =
    "  sl  local_address rem_address   st tx_queue\n   7: 3500007F:0035 00000000:0000 07 0:0\n   8: 00000000:1092 00000000:0000 07 0:0\n";
  expect(parseSockets("udp", udp)).toEqual([
    { protocol: "udp", address: "127.0.0.53", port: 53 },
    { protocol: "udp", address: undefined, port: 4242 },
  ]);
  const tcp6 =
    "   0: B80D0120000000000000000001000000:1538 00000000000000000000000000000000:0000 0A 0\n" +
    "   1: 00000000000000000000000000000000:0050 0:0 01 0\n" +
    "   2: 0000000000000000FFFF00000100007F:0051 0:0 0A 0\n";
  expect(parseSockets("tcp", tcp6)).toEqual([
    { protocol: "tcp", address: "2001:db8::1", port: 5432 },
    { protocol: "tcp", address: "127.0.0.1", port: 81 },
  ]);
});

test("loopback is not among the addresses, and every other interface is; a bound port is taken", async () => {
  const { addresses, interfaces, sockets } = machineState();
  expect(addresses.map(({ address }) => address)).not.toContain("127.0.0.1/8");
  for (const [device, found = []] of Object.entries(networkInterfaces()))
    for (const { cidr, internal } of found)
      if (!internal)
        expect(addresses).toContainEqual(expect.objectContaining({ device, address: cidr ?? "" }));
  if (process.platform !== "linux") return;
  expect(interfaces).toContain("lo");
  const socket = createSocket("udp4");
  const { promise, resolve } = Promise.withResolvers<void>();
  socket.bind(0, "127.0.0.1", resolve);
  await promise;
  const { port } = socket.address();
  expect(sockets()).toContainEqual({ protocol: "udp", address: "127.0.0.1", port });
  socket.close();
});

test("name servers are read in one spelling", () => {
  expect(parseNameServers("nameserver 9.9.9.9\nsearch x\nnameserver 2001:DB8:0::1\nnameserver x\n")).toEqual([
    "9.9.9.9",
    "2001:db8::1",
  ]);
});
