// Networks and gateways of this machine, from the kernel's tables.

import { expect, test } from "bun:test";
import { networkInterfaces } from "node:os";
import { attachedNetworks, parseGateways4, parseGateways6 } from "../../src/platform/attached-networks.ts";

test("IPv4 default gateways are read from the kernel's table", () => {
  const table = [
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT",
    "eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0",
    // Half of the internet, and a default route without a gateway.
    "tun0\t00000000\t0200000A\t0003\t0\t0\t0\t00000080\t0\t0\t0",
    "ppp0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0",
    "eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0",
    "",
  ].join("\n");
  expect(parseGateways4(table)).toEqual([{ device: "eth0", address: "192.168.1.1/32" }]);
  expect(parseGateways4("")).toEqual([]);
});

test("IPv6 default gateways are read from the kernel's table", () => {
  const none = "0".repeat(32);
  const gateway = "20010db8000000000000000000000001";
  const table = [
    `${none} 00 ${none} 00 ${gateway} 00000400 00000001 00000000 00000003     eth0`,
    `${none} 00 ${none} 00 ${none} ffffffff 00000001 00000000 00200200       lo`,
    `20010db8000000000000000000000000 40 ${none} 00 ${none} 00000100 00000001 00000000 00000001     eth0`,
  ].join("\n");
  expect(parseGateways6(table)).toEqual([
    { device: "eth0", address: "2001:0db8:0000:0000:0000:0000:0000:0001/128" },
  ]);
});

test("loopback is not among the networks, and every other interface is", () => {
  const found = attachedNetworks();
  const [external = []] = Object.values(networkInterfaces()).filter((each) => each?.[0]?.internal === false);
  expect(found.map(({ address }) => address)).not.toContain("127.0.0.1/8");
  for (const { cidr } of external) expect(found.map(({ address }) => address)).toContain(cidr ?? "");
});
