// Networks of a new organization.

import { expect, test } from "bun:test";
import { freeNetwork, overlapped } from "../../../src/console/node/overlay-networks.ts";

const networks = (...all: string[]) => all.map((network) => ({ network }));

test("an IPv4 network overlaps one that holds it, lies in it or is the same", () => {
  const all = networks("fd77::/64", "10.64.0.0/10", "192.168.7.0/24");
  for (const [network, other] of [
    ["10.77.0.0/16", "10.64.0.0/10"],
    ["10.0.0.0/8", "10.64.0.0/10"],
    ["10.64.0.0/10", "10.64.0.0/10"],
    ["10.127.255.255/32", "10.64.0.0/10"],
    ["192.168.0.0/16", "192.168.7.0/24"],
    ["0.0.0.0/0", "10.64.0.0/10"],
  ] as const)
    expect([network, overlapped(network, all)?.network]).toEqual([network, other]);
  for (const network of ["10.128.0.0/16", "10.63.0.0/16", "192.168.8.0/24", "224.0.0.0/4", "fd77::/64"])
    expect([network, overlapped(network, all)]).toEqual([network, undefined]);
});

test("what is no network, such as a half typed one, overlaps none", () => {
  const all = networks("10.77.0.0/16");
  for (const text of [
    "",
    "10.77.",
    "10.77.0.0",
    "10.77.0.0/",
    "10.77.0.0/1",
    "10.77.0.1/16",
    "10.77./16",
    "10.77.0.x/32",
  ])
    expect([text, overlapped(text, all)]).toEqual([text, undefined]);
});

test("the proposed network overlaps none that there is", () => {
  expect(freeNetwork([])).toBe("10.77.0.0/16");
  expect(freeNetwork(networks("10.64.0.0/10"))).toBe("100.64.0.0/16");
  expect(freeNetwork(networks("10.77.0.0/16", "100.64.0.0/16", "100.65.9.0/24"))).toBe("100.66.0.0/16");
  expect(freeNetwork(networks("10.0.0.0/8", "100.64.0.0/10"))).toBe("");
});
