// What a node compares with the time before its update.

import { expect, test } from "bun:test";
import { compareMemory, compareWithBefore, describeBefore } from "../../../src/node/update/compare-before.ts";
import { judge, lostRounds } from "../../../src/node/update/echo-peers.ts";

const now = Date.parse("2026-11-28T12:00:00Z");
const addresses = ["10.77.0.2", "10.77.0.3", "10.77.0.4"];
const tunnels = (...relayed: string[]) =>
  addresses.map((address) => ({ address, isRelayed: relayed.includes(address), loss: 0.1 }));
const timedOut = (address: string, minutesAgo: number) =>
  JSON.stringify({
    time: new Date(now - minutesAgo * 60_000).toISOString(),
    level: "info",
    msg: "Handshake timed out",
    vpnIp: address,
  });

test("most peers that were direct are relayed: one alone proves nothing", () => {
  const before = describeBefore(tunnels("10.77.0.4"), [], now);
  expect(before).toMatchObject({ direct: ["10.77.0.2", "10.77.0.3"], tunnels: 3, failed: [] });
  expect(before.loss).toBeCloseTo(0.1);
  expect(compareWithBefore(before, tunnels("10.77.0.4"), [], now)).toBeUndefined();
  expect(compareWithBefore(before, tunnels("10.77.0.3", "10.77.0.4"), [], now)).toBeUndefined();
  expect(compareWithBefore(before, tunnels(...addresses), [], now)?.reason).toBe(
    "2 of 2 peers that it reached directly before are relayed",
  );
});

test("handshakes fail with most peers with which none failed in the hour before", () => {
  const failing = addresses.slice(0, 2).map((address) => timedOut(address, 0.5));
  const compare = (...earlier: string[]) =>
    compareWithBefore(describeBefore(tunnels(), earlier, now - 120_000), tunnels(), failing, now);
  expect(compare()?.probe).toBe("handshakes with 10.77.0.2, 10.77.0.3");
  expect(compare(timedOut("10.77.0.2", 30))).toBeUndefined();
  expect(compare(timedOut("10.77.0.2", 90))?.probe).toBe("handshakes with 10.77.0.2, 10.77.0.3");
});

test("a path that lost packets before may lose as many after", () => {
  const keys = ["4 small 10.77.0.2"];
  // Every fourth echo is lost, never so many in a row that the peer counts as lost.
  const rounds = Array.from({ length: 20 }, (_, at) => ({
    at,
    answered: new Set(at % lostRounds === 0 ? [] : keys),
  }));
  expect(judge(keys, rounds)?.probe).toBe("loss of echoes");
  expect(judge(keys, rounds, 0.1)).toBeUndefined();
});

test("the memory of an engine may grow by 40 MB, or a quarter of what the former one had", () => {
  const mb = 1024;
  expect(compareMemory(25 * mb, 65 * mb)).toBeUndefined();
  expect(compareMemory(25 * mb, 66 * mb)?.reason).toBe("The engine's memory grew from 25 to 66 MB");
  expect(compareMemory(2000 * mb, 2500 * mb)).toBeUndefined();
  expect(compareMemory(2000 * mb, 2501 * mb)?.probe).toBe("memory of the engine");
});
