// Since when a node does not reach a peer, as its page says it.

import { expect, test } from "bun:test";
import { outageStart } from "../../../src/console/node/why-words.ts";

const alarm = { kind: "path" as const, nodes: [1], since: "2026-01-02T03:04:05Z", ended_at: null };

test("an outage began when its open alarm says, at either end of the pair", () => {
  expect(outageStart([alarm], [1, 2])).toBe(alarm.since);
  expect(outageStart([alarm], [2, 1])).toBe(alarm.since);
});

test("without one open alarm about the pair, the beginning of an outage is unknown", () => {
  expect(outageStart([], [1, 2])).toBeUndefined();
  expect(outageStart([alarm], [2, null])).toBeUndefined();
  expect(outageStart([{ ...alarm, ended_at: alarm.since }], [1, 2])).toBeUndefined();
  expect(outageStart([{ ...alarm, kind: "node" }], [1, 2])).toBeUndefined();
  expect(outageStart([alarm, { ...alarm, nodes: [2] }], [1, 2])).toBeUndefined();
});
