import { expect, test } from "bun:test";
import { isLoopback } from "../../src/base/loopback.ts";

test.each(["localhost", "127.0.0.1", "127.255.0.9", "::1", "[::1]"])("%s is loopback", (host) => {
  expect(isLoopback(host)).toBe(true);
});

test.each([
  "127.example.org",
  "127.0.0.1.example.org",
  "localhost.example.org",
  "128.0.0.1",
  "0.0.0.0",
  "::",
  "",
])("%s is not loopback", (host) => {
  expect(isLoopback(host)).toBe(false);
});
