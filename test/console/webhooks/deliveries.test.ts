// What the page Webhooks says about events and deliveries.

import { expect, test } from "bun:test";
import {
  isUnderWay,
  withFound,
  nodesIn,
  outcomeOf,
  outcomeOfAll,
  standingOf,
} from "../../../src/console/webhooks/deliveries.ts";
import type { ListedDelivery as Delivery } from "../../../src/api/webhooks/webhooks.ts";

const delivery = (id: number, more: Partial<Delivery>): Delivery => ({
  id,
  event_id: id,
  event_type: "node.updated",
  event_subject: "node/7",
  attempts: 1,
  state: "waiting",
  status: null,
  message: null,
  next_attempt_at: null,
  delivered_at: null,
  created_at: "2026-11-23T10:00:00Z",
  ...more,
});

test("an attempt that was asked for has a result once the receiver answered, or could not", () => {
  expect(outcomeOf(delivery(1, { attempts: 6 }))).toBeUndefined();
  expect(outcomeOf(delivery(1, { state: "delivered", status: 204 }))).toBe(
    "Delivered: the receiver answered 204.",
  );
  const message = "The connection failed: the connection was refused (ECONNREFUSED).";
  for (const state of ["waiting", "failed"] as const)
    expect(outcomeOf(delivery(1, { state, message }))).toBe(`Not delivered. ${message}`);
});

test("several that were sent have a result when each has one, and it is a failure unless all arrived", () => {
  const arrived = delivery(1, { state: "delivered", status: 200 });
  const refused = delivery(2, { message: "The receiver answered 500.", status: 500 });
  expect(outcomeOfAll([])).toBeUndefined();
  expect(outcomeOfAll([arrived, delivery(3, {})])).toBeUndefined();
  const one = "Not delivered. The receiver answered 500.";
  expect(outcomeOfAll([refused])).toEqual({ words: one, isFailure: true });
  expect(outcomeOfAll([arrived, refused])).toEqual({ words: "Delivered: 1 of 2.", isFailure: true });
  expect(outcomeOfAll([arrived, arrived])).toEqual({ words: "Delivered: 2 of 2.", isFailure: false });
});

test("the nodes that deliveries are about are asked for once each", () => {
  const about = (event_subject: string) => delivery(1, { event_subject });
  expect(nodesIn([about("node/252"), about("group/node/3"), about("node/252"), about("node/9")])).toEqual([
    252, 9,
  ]);
});

test("a webhook says how many deliveries wait, why the last one failed, and when one arrived", () => {
  const arrived = delivery(1, { state: "delivered", status: 200, delivered_at: "2026-11-23T10:00:01Z" });
  const failed = delivery(2, { message: "The receiver answered 500.", status: 500 });
  const fresh = delivery(3, { attempts: 0 });
  expect(standingOf([])).toEqual({ waiting: [], failure: undefined, lastSuccess: null });
  expect(standingOf([fresh, failed, arrived])).toEqual({
    waiting: [failed],
    failure: "The receiver answered 500.",
    lastSuccess: "2026-11-23T10:00:01Z",
  });
  const later = delivery(4, { state: "delivered", delivered_at: "2026-11-23T11:00:00Z" });
  expect(standingOf([later, failed, arrived])).toMatchObject({
    failure: undefined,
    lastSuccess: later.delivered_at,
  });
});

const some = (newest: number, oldest: number, more: Partial<Delivery> = {}) =>
  Array.from({ length: newest - oldest + 1 }, (_, at) => delivery(newest - at, more));
const idsOf = ({ items }: { items: readonly Delivery[] }) => items.map(({ id }) => id);

test("older deliveries stay when the newest are read again, each with its latest state", () => {
  const first = withFound({ items: [], isAll: false }, { found: some(9, 7) });
  const second = withFound(first, { found: some(6, 4), before: 7 });
  expect(idsOf(second)).toEqual([9, 8, 7, 6, 5, 4]);
  const third = withFound(second, { found: some(10, 8, { state: "delivered" }) });
  expect(idsOf(third)).toEqual([10, 9, 8, 7, 6, 5, 4]);
  expect(third.items.map(({ state }) => state)).toEqual([
    ...Array.from({ length: 3 }, () => "delivered" as const),
    ...Array.from({ length: 4 }, () => "waiting" as const),
  ]);
  expect(third.isAll).toBe(false);
  expect(withFound(third, { found: [], isEnd: true, before: 4 })).toMatchObject({ isAll: true });
  // One that was sent again.
  const again = withFound(third, { found: [delivery(5, { state: "failed" })], before: 5 });
  expect(again.items.filter(({ state }) => state === "failed").map(({ id }) => id)).toEqual([5]);
});

test("a page begins anew when more deliveries came than one reading has, so that none is missing between", () => {
  const known = withFound({ items: [], isAll: false }, { found: some(3, 1), isEnd: true });
  expect(known.isAll).toBe(true);
  const anew = withFound(known, { found: some(9, 7) });
  expect([idsOf(anew), anew.isAll]).toEqual([[9, 8, 7], false]);
  // The answer to what was asked before.
  expect(withFound(anew, { found: some(2, 1), isEnd: true, before: 3 })).toBe(anew);
});

test("a delivery is under way until its first answer, after it was asked for, and shortly before an attempt", () => {
  const now = Date.parse("2026-11-23T10:00:00Z");
  const message = "The receiver answered 500.";
  expect(isUnderWay(delivery(1, { attempts: 0 }), now)).toBe(true);
  expect(isUnderWay(delivery(1, { message, next_attempt_at: "2026-11-23T10:00:20Z" }), now)).toBe(true);
  expect(isUnderWay(delivery(1, { message, next_attempt_at: "2026-11-23T11:00:00Z" }), now)).toBe(false);
  expect(isUnderWay(delivery(1, { next_attempt_at: "2026-11-23T11:00:00Z" }), now)).toBe(true);
  for (const state of ["delivered", "failed"] as const)
    expect(isUnderWay(delivery(1, { state }), now)).toBe(false);
});
