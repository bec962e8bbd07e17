import { expect, test } from "bun:test";
import { formatTime, parseDuration } from "../../src/base/quantities.ts";

test("parseDuration() reads seconds, minutes, hours and days, and nothing else", () => {
  expect(["90s", "15m", "24h", "7d"].map(parseDuration)).toEqual([90, 900, 86_400, 604_800]);
  for (const text of ["", "5", "-5s", "1.5h", "5 m", "5w", "1h30m", "9999999999s"])
    expect(parseDuration(text)).toBeUndefined();
});

test("formatTime() is RFC 3339 in UTC without fractions", () => {
  expect(formatTime(Date.UTC(2026, 10, 21, 8, 51, 3, 999))).toBe("2026-11-21T08:51:03Z");
});
