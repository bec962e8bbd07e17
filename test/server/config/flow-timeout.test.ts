// How long engines may keep a flow, by the timeouts of their configurations.

import { expect, test } from "bun:test";
import { flowTimes, longestFlowMs } from "../../../src/server/config/flow-timeout.ts";

const longest = (...conntracks: Record<string, string>[]) =>
  longestFlowMs(conntracks.map((conntrack) => flowTimes({ firewall: { conntrack } }))) / 60_000;

test("a flow ends two ticks of the shortest timeout after the longest one, minutes", () => {
  expect(longest({})).toBe(12 + 2 * 3);
  expect(longest({ udp_timeout: "24h", tcp_timeout: "1m" })).toBe(24 * 60 + 2 * 1);
});

test("timeouts of the organization and of a node make one configuration, minutes", () => {
  // The engine of the node has 60, 120 and 60 minutes: its ticks are longer than the shortest timeout of either.
  expect(longest({ tcp_timeout: "1h", default_timeout: "1h" }, { udp_timeout: "2h" })).toBe(120 + 2 * 60);
});
