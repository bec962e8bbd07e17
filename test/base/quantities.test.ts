import { expect, test } from "bun:test";
import { formatTime, parseDuration, parseMoment } from "../../src/base/quantities.ts";

test("parseDuration() reads seconds, minutes, hours and days, and nothing else", () => {
  expect(["90s", "15m", "24h", "7d"].map(parseDuration)).toEqual([90, 900, 86_400, 604_800]);
  for (const text of ["", "5", "-5s", "1.5h", "5 m", "5w", "1h30m", "9999999999s"])
    expect(parseDuration(text)).toBeUndefined();
});

test("formatTime() is RFC 3339 in UTC without fractions", () => {
  expect(formatTime(Date.UTC(2026, 10, 21, 8, 51, 3, 999))).toBe("2026-11-21T08:51:03Z");
});

test("parseMoment() reads dates and times with a zone, and refuses days that do not exist", () => {
  const at = Date.UTC(2026, 10, 22, 8);
  for (const text of ["2026-11-22T08:00Z", "2026-11-22T08:00:00.000Z", "2026-11-22T10:00:00+02:00"])
    expect([text, parseMoment(text)]).toEqual([text, at]);
  expect(parseMoment("2024-02-29")).toBe(Date.UTC(2024, 1, 29));
  for (const text of [
    "",
    "2026-02-30",
    "2026-02-29T08:00Z",
    "2026-04-31T23:00-02:00",
    "2026-13-01",
    "2026-11-22T08:00",
  ])
    expect([text, parseMoment(text)]).toEqual([text, undefined]);
});
