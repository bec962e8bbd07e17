// The address of a client behind proxies.

import { expect, test } from "bun:test";
import { clientAddress, networksOfFlag } from "../../../src/server/http/edge.ts";

test("X-Forwarded-For counts only in the part that trusted proxies wrote", () => {
  const proxies = networksOfFlag("--trusted-proxy", ["10.0.0.0/8", "192.0.2.7"]);
  const seen = (peer: string, forwarded: string | null) => clientAddress(peer, forwarded, proxies);
  expect(seen("203.0.113.1", "198.51.100.1")).toBe("203.0.113.1");
  expect(seen("10.1.1.1", "198.51.100.1")).toBe("198.51.100.1");
  expect(seen("10.1.1.1", "6.6.6.6, 198.51.100.1, 192.0.2.7")).toBe("198.51.100.1");
  expect(seen("::ffff:10.1.1.1", "198.51.100.1")).toBe("198.51.100.1");
  expect(seen("10.1.1.1", "evil, 10.2.2.2")).toBe("10.2.2.2");
  expect(seen("10.1.1.1", null)).toBe("10.1.1.1");
  expect(clientAddress("10.1.1.1", "198.51.100.1", [])).toBe("10.1.1.1");
});

test.each([
  ["203.0.113.7:1234", "203.0.113.7"],
  ["[2001:db8::1]:443", "2001:db8::1"],
  ["[2001:db8::1]", "2001:db8::1"],
  ["2001:DB8:0::1", "2001:db8::1"],
  ["::ffff:203.0.113.7", "203.0.113.7"],
  ["[::ffff:203.0.113.7]:65535", "203.0.113.7"],
  ["\t 203.0.113.7 \t", "203.0.113.7"],
  ['"203.0.113.7:80"', "203.0.113.7"],
  ['"[2001:db8::1]:443"', "2001:db8::1"],
  ["6.6.6.6, 203.0.113.7:1, 10.2.2.2:2", "203.0.113.7"],
  ["6.6.6.6,203.0.113.7,[::ffff:10.2.2.2]:2", "203.0.113.7"],
])("X-Forwarded-For %p names %s", (forwarded, client) => {
  const proxies = networksOfFlag("--trusted-proxy", ["10.0.0.0/8"]);
  expect(clientAddress("10.1.1.1", forwarded, proxies)).toBe(client);
});

test.each([
  "unknown",
  "_hidden",
  "",
  '"',
  '""',
  '"203.0.113.7',
  "203.0.113.7:",
  "203.0.113.7:123456",
  "203.0.113.7:80:80",
  "203.0.113.7;",
  "[203.0.113.7]:80",
  "[2001:db8::1",
  "2001:db8::1]:443",
  "[2001:db8::1]443",
  "[[2001:db8::1]]",
  "fe80::1%eth0",
  "for=203.0.113.7",
  'for="[2001:db8::1]:4711"',
  "203.0.113.7 6.6.6.6",
  "0x7f.1",
  "3405803783",
  "203.0.113.07",
  "203.0.113.256",
  "localhost",
  `203.0.113.7:1${" ".repeat(100)}x`,
  "[".repeat(80),
])("at %p, which is no address, the proxy itself counts, and nothing to the left", (entry) => {
  const proxies = networksOfFlag("--trusted-proxy", ["10.0.0.0/8"]);
  for (const forwarded of [entry, `6.6.6.6, ${entry}`]) {
    expect(clientAddress("10.1.1.1", forwarded, proxies)).toBe("10.1.1.1");
  }
});
