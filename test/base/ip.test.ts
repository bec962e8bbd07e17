import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import ipaddr from "ipaddr.js";
import {
  addressFromBytes,
  addressOf,
  formatAddress,
  hostOf,
  isWithin,
  lastHost,
  maskNetwork,
  networkContains,
  networksOverlap,
  networkTextsOverlap,
  parseAddress,
  parseNetwork,
  parseUnderlay,
  specialHost,
  withoutPort,
  type Network,
} from "../../src/base/ip.ts";

function network(text: string): Network {
  const parsed = parseNetwork(text);
  if (parsed === undefined) throw new Error(`${text} is no network`);
  return parsed;
}

function host(networkText: string, address: string): number | undefined {
  const parsed = parseAddress(address);
  return parsed === undefined ? undefined : hostOf(network(networkText), parsed);
}

describe("reading", () => {
  test.each(["10.77.0.5", "255.255.255.255", "fd00::1", "2001:db8::ff"])("%s is an address", (text) => {
    const parsed = parseAddress(text);
    expect(parsed === undefined ? "" : formatAddress(parsed)).toBe(text);
  });

  test.each([
    "",
    "10.77.0",
    "10.77.0.5/16",
    "010.77.0.5",
    "0x0a.1.1.1",
    "10.77.0.256",
    "::ffff:10.0.0.1",
    "fe80::1%eth0",
    "../../../tmp/x",
    "host",
  ])("%p is none", (text) => expect(parseAddress(text)).toBeUndefined());

  test.each([
    "10.77.0.0",
    "10.77.0.0/33",
    "10.77.0.1/16",
    "10.77.0.0/",
    "fd00::1/64",
    "fd00::/129",
    "/8",
    "10.0.0.0/-1",
  ])("%p is no network", (text) => expect(parseNetwork(text)).toBeUndefined());

  test("maskNetwork() clears host bits", () => {
    expect(maskNetwork("10.77.3.9/16")).toBe("10.77.0.0/16");
    expect(maskNetwork("fd00:1::9/64")).toBe("fd00:1::/64");
    expect(maskNetwork("10.77.3.9/40")).toBeUndefined();
  });
});

describe("hosts", () => {
  test("no node gets the network address or the broadcast address", () => {
    expect(host("10.77.0.0/29", "10.77.0.0")).toBeUndefined();
    expect(host("10.77.0.0/29", "10.77.0.1")).toBe(1);
    expect(host("10.77.0.0/29", "10.77.0.6")).toBe(6);
    expect(host("10.77.0.0/29", "10.77.0.7")).toBeUndefined();
    expect(host("10.77.0.0/29", "10.77.0.8")).toBeUndefined();
    expect(host("10.77.0.0/29", "fd00::1")).toBeUndefined();
  });

  test("host numbers in the widest networks are exact", () => {
    expect(lastHost(network("0.0.0.0/0"))).toBe(2 ** 32 - 2);
    expect(lastHost(network("fd00::/64"))).toBe(2 ** 48);
    expect(addressOf(network("fd00::/64"), 2 ** 48)).toBe("fd00::1:0:0:0");
    expect(host("fd00::/64", "fd00::ffff:ffff:ffff:ffff")).toBeUndefined();
  });

  test("a network that is too small has no host number", () => {
    expect(lastHost(network("10.0.0.0/31"))).toBe(0);
    expect(lastHost(network("10.0.0.0/32"))).toBe(0);
  });

  test("host number and address convert both ways", () => {
    const networks = ["10.77.0.0/16", "192.168.4.0/22", "fd00:7::/96"].map(network);
    fc.assert(
      fc.property(fc.constantFrom(...networks), fc.nat(65_533), (net, at) => {
        const host = 1 + (at % lastHost(net));
        const address = parseAddress(addressOf(net, host));
        return address !== undefined && networkContains(net, address) && hostOf(net, address) === host;
      }),
    );
  });
});

test("overlapping networks are found in both directions", () => {
  expect(networksOverlap(network("10.0.0.0/8"), network("10.77.0.0/16"))).toBe(true);
  expect(networksOverlap(network("10.77.0.0/16"), network("10.0.0.0/8"))).toBe(true);
  expect(networksOverlap(network("10.77.0.0/16"), network("10.78.0.0/16"))).toBe(false);
  expect(networksOverlap(network("::/0"), network("10.78.0.0/16"))).toBe(false);
});

test("texts that are no address or no network are in none, and overlap with none", () => {
  const networks = [network("10.77.0.0/16"), network("fd00::/64")];
  expect(["10.77.3.9", "fd00::9"].map((each) => isWithin(each, networks))).toEqual([true, true]);
  expect(["10.78.0.1", "fd01::1", "", "host"].map((each) => isWithin(each, networks))).not.toContain(true);
  expect(networkTextsOverlap("10.0.0.0/8", "10.77.0.0/16")).toBe(true);
  expect([networkTextsOverlap("10.0.0.0/8", "host"), networkTextsOverlap("", "10.0.0.0/8")]).toEqual([
    false,
    false,
  ]);
});

test("addresses in any spelling are read as the library reads them", () => {
  const reference = (text: string) => {
    if (ipaddr.IPv4.isValidFourPartDecimal(text))
      return addressFromBytes(ipaddr.IPv4.parse(text).toByteArray());
    if (!text.includes(":") || text.includes("%") || !ipaddr.IPv6.isValid(text)) return undefined;
    const parsed = ipaddr.IPv6.parse(text);
    return parsed.isIPv4MappedAddress() ? undefined : addressFromBytes(parsed.toByteArray());
  };
  const group = fc.oneof(
    fc.stringMatching(/^[0-9a-f]{1,4}$/),
    fc.constantFrom("", "0", "0000", "ffff", "12345", "g"),
  );
  const six = fc.array(group, { maxLength: 9 }).map((groups) => groups.join(":"));
  const gap = fc.tuple(six, six).map(([head, tail]) => `${head}::${tail}`);
  const part = fc.oneof(fc.nat(300).map(String), fc.constantFrom("", "00", "010", "1e1", "-1"));
  const four = fc.array(part, { minLength: 3, maxLength: 5 }).map((parts) => parts.join("."));
  fc.assert(
    fc.property(fc.oneof(six, gap, four), (text) => {
      expect(parseAddress(text)).toEqual(reference(text));
    }),
    { numRuns: 1000 },
  );
  expect(parseAddress("0000::ffff:102:304")).toBeUndefined();
});

test("the host of a text with or without a port, and a bare address of IPv6 has none", () => {
  const cases = {
    "192.0.2.1:4242": "192.0.2.1",
    "[2001:db8::1]:4242": "2001:db8::1",
    "example.org:4242": "example.org",
    "example.org": "example.org",
    "[2001:db8::1]": "2001:db8::1",
    "2001:db8::1": "2001:db8::1",
    "::1": "::1",
    ":4242": "",
  };
  for (const [text, host] of Object.entries(cases)) expect(withoutPort(text)).toBe(host);
  expect(parseUnderlay("2001:db8::1")).toBeUndefined();
  expect(parseUnderlay("[2001:db8::1]:4242")).toMatchObject({ host: "2001:db8::1", port: 4242 });
});

test("names that mean the asking machine are special", () => {
  for (const name of ["localhost", "x.localhost", "localhost.localdomain", "ip6-localhost", "IP6-loopback"])
    expect(specialHost(name)).toBe(name);
  for (const name of ["localhosts", "ip6-localhost.example.org", "my-ip6-loopback"])
    expect(specialHost(name)).toBeUndefined();
});
