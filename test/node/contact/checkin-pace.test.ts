// The pauses of a loop of check-ins, with chosen random numbers.

import { expect, test } from "bun:test";
import { AppError } from "../../../src/base/errors.ts";
import { makePace } from "../../../src/node/contact/checkin-pace.ts";

/** The half of each random part. */
const half = { random: () => Uint8Array.of(128, 0) };
const good = { isApplied: true, isRevoked: false, hasChanged: false, tookMs: 50_000 };
const always = Number.POSITIVE_INFINITY;

test("the first check-in is not held, the ones after an answer are, within the time that is left", () => {
  const pace = makePace(half);
  expect(pace.next(always)).toEqual({ waitS: 0, repeatable: true });
  expect(pace.answered(good)).toBe(0);
  expect(pace.next(always)).toEqual({ waitS: 55, repeatable: false });
  expect(pace.answered(good)).toBe(0);
  expect(pace.next(7.9).waitS).toBe(7);
});

test("a held poll that breaks is asked again soon, once, and is no failure; in vain, it is one", () => {
  const pace = makePace(half);
  pace.next(always);
  pace.answered(good);
  pace.next(always);
  expect([pace.failed(new Error("reset")), pace.isFirstFailure()]).toEqual([450, false]);
  expect(pace.next(always)).toEqual({ waitS: 0, repeatable: false });
  expect([pace.failed(new Error("refused")), pace.isFirstFailure()]).toEqual([2000, true]);
  expect(pace.next(always)).toEqual({ waitS: 0, repeatable: true });
});

test("failures pause longer each time, up to a minute; an answer begins anew", () => {
  const pace = makePace(half);
  const pauses = Array.from({ length: 7 }, () => {
    pace.next(always);
    return pace.failed(new Error("refused"));
  });
  expect(pauses).toEqual([2000, 6000, 12_000, 24_000, 45_000, 45_000, 45_000]);
  expect(pace.isFirstFailure()).toBe(false);
  pace.answered(good);
  pace.next(always);
  pace.failed(new Error("reset"));
  pace.next(always);
  expect([pace.failed(new Error("refused")), pace.isFirstFailure()]).toEqual([2000, true]);
});

test("Retry-After is kept up to a minute, also for a held poll", () => {
  const busy = (retryAfter: number) => new AppError("throttled", "Too many requests", { retryAfter });
  const pace = makePace(half);
  pace.next(always);
  pace.answered(good);
  pace.next(always);
  expect([pace.failed(busy(5)), pace.isFirstFailure()]).toEqual([7000, true]);
  pace.next(always);
  expect(pace.failed(busy(86_400))).toBe(45_000);
});

test("a configuration that is not applied counts as a failure; a revoked node asks every ten seconds at most", () => {
  const pace = makePace(half);
  pace.next(always);
  expect([pace.answered({ ...good, isApplied: false }), pace.isFirstFailure()]).toEqual([2000, true]);
  pace.next(always);
  expect([pace.answered({ ...good, isApplied: false }), pace.isFirstFailure()]).toEqual([6000, false]);
  expect(pace.answered({ ...good, isRevoked: true })).toBe(7500);
});

test("a server that answers held requests at once is asked about once a second, unless it brought a change", () => {
  const pace = makePace(half);
  pace.next(always);
  expect(pace.answered({ ...good, tookMs: 5 })).toBe(0);
  pace.next(always);
  expect(pace.answered({ ...good, tookMs: 5 })).toBe(750);
  pace.next(always);
  expect(pace.answered({ ...good, tookMs: 5, hasChanged: true })).toBe(0);
});
