// Which router of a network a node uses: metric, round trip, failures, returns.

import { expect, test } from "bun:test";
import { chooseRouter, type RouterChoice, type RouterSeen } from "../../../src/node/routing/choose-router.ts";

const seen = (via: string, fields: Partial<RouterSeen> = {}): RouterSeen => ({
  via,
  metric: 100,
  isAlive: true,
  aliveSince: 0,
  rttMs: 10,
  hasAnswered: true,
  ...fields,
});
const dead = { isAlive: false, aliveSince: undefined };
const using = (via: string, fields: Partial<RouterChoice> = {}): RouterChoice => ({
  via,
  reviewAt: 1e9,
  failed: {},
  ...fields,
});
const via = (...args: Parameters<typeof chooseRouter>) => chooseRouter(...args)?.choice.via;

test("at first: the lowest metric that answers, among equals the nearest; without answers the preferred one", () => {
  expect(via(undefined, [seen("a"), seen("b", { metric: 50 })], 0)).toBe("b");
  expect(via(undefined, [seen("a", { rttMs: 40 }), seen("b", { rttMs: 5 })], 0)).toBe("b");
  expect(via(undefined, [seen("a", { ...dead, metric: 1 }), seen("b")], 0)).toBe("b");
  expect(via(undefined, [seen("a", dead), seen("b", dead)], 0)).toBe("a");
  expect(chooseRouter(undefined, [], 0)).toBeUndefined();
});

test("a dead router is left at once, and not as planned; while none answers the present one stays", () => {
  const decided = chooseRouter(using("a"), [seen("a", dead), seen("b", { aliveSince: 999 })], 1000);
  expect(decided).toMatchObject({
    choice: { via: "b", failed: { a: { at: 1000, times: 1 } } },
    isPlanned: false,
  });
  expect(via(using("a"), [seen("a", dead), seen("b", dead)], 1000)).toBe("a");
  // Both were away, and the other one returns first: no hold.
  const failed = { b: { at: 900, times: 9 } };
  expect(via(using("a", { failed }), [seen("a", dead), seen("b", { aliveSince: 1000 })], 1000)).toBe("b");
  // No router takes pings: the control plane chooses, also another one.
  const silent = { ...dead, hasAnswered: false };
  expect(via(using("a"), [seen("b", silent), seen("a", { ...silent, metric: 1_000_100 })], 0)).toBe("b");
  // A router that the control plane no longer names.
  expect(via(using("gone"), [seen("a"), seen("b", { metric: 7 })], 0)).toBe("b");
});

test("a better router that failed comes back after a hold, which doubles with each relapse up to five minutes", () => {
  const routers = (since: number) => [seen("a", { metric: 1, aliveSince: since }), seen("b")];
  const after = (times: number, ms: number) =>
    via(using("b", { failed: { a: { at: 0, times } } }), routers(1000), 1000 + ms);
  expect([after(1, 9_999), after(1, 10_000)]).toEqual(["b", "a"]);
  expect([after(3, 39_999), after(3, 40_000)]).toEqual(["b", "a"]);
  expect([after(20, 299_999), after(20, 300_000)]).toEqual(["b", "a"]);
  // Half an hour later it is forgotten.
  expect(via(using("b", { failed: { a: { at: 0, times: 20 } } }), routers(1_900_000), 1_910_000)).toBe("a");
  const relapsed = chooseRouter(
    using("a", { failed: { a: { at: 0, times: 2 } } }),
    [seen("a", dead), seen("b")],
    5,
  );
  expect(relapsed?.choice.failed["a"]).toEqual({ at: 5, times: 3 });
});

test("among equals, a much nearer one is taken at a review, as planned; maintenance is the last choice", () => {
  const near = (rttMs: number) => [seen("a", { rttMs: 60 }), seen("b", { rttMs })];
  expect(via(using("a", { reviewAt: 2000 }), near(5), 1999)).toBe("a");
  expect(chooseRouter(using("a", { reviewAt: 2000 }), near(5), 2000)).toMatchObject({
    choice: { via: "b" },
    isPlanned: true,
  });
  for (const rttMs of [45, 51]) expect(via(using("a", { reviewAt: 0 }), near(rttMs), 1)).toBe("a");
  const tired = [seen("a", { metric: 1_000_100 }), seen("b", { aliveSince: -20_000 })];
  expect(chooseRouter(using("a"), tired, 0)).toMatchObject({ choice: { via: "b" }, isPlanned: true });
  expect(via(using("a"), [tired[0] ?? seen("a"), seen("b", dead)], 0)).toBe("a");
});
