// What the console says about the CAs while a rotation runs.

import { expect, test } from "bun:test";
import { stepOf, trustOf, type Authority, type Rotation } from "../../src/console/authorities.ts";

const ca = (state: Authority["state"], trusted = true): Authority => ({
  fingerprint: "ab",
  kind: "overlay",
  state,
  trusted,
  not_before: "2026-01-01T00:00:00Z",
  not_after: "2027-01-01T00:00:00Z",
});
const rotation = (phase: Rotation["phase"], waiting: number): Rotation => ({
  phase,
  paused: false,
  rolling_back: false,
  waiting_for: Array.from({ length: waiting }, (_, at) => at),
  waiting_for_names: [],
  next_step_at: null,
  auto: false,
});

test("machines trust a new CA once all have confirmed it", () => {
  expect(trustOf(ca("next"), rotation("trust", 299))).toBe("not all: 299 have yet to confirm it");
  expect(trustOf(ca("next"), rotation("trust", 1))).toBe("not all: 1 has yet to confirm it");
  expect(trustOf(ca("next"), rotation("trust", 0))).toBe("yes");
  expect(trustOf(ca("active"), rotation("trust", 299))).toBe("yes");
  expect(trustOf(ca("active"), rotation("issue", 3))).toBe("yes");
  expect(trustOf(ca("former", false), rotation("retire", 3))).toBe("ending: 3 have yet to confirm it");
  expect(trustOf(ca("former", false), rotation("retire", 0))).toBe("no");
  expect(trustOf(ca("former", false), rotation("none", 0))).toBe("no");
});

test("each step of a rollback says that it is one", () => {
  for (const phase of ["trust", "issue", "retire"] as const) {
    expect(stepOf({ phase, rolling_back: true })).toContain("is being rolled back");
    expect(stepOf({ phase, rolling_back: false })).toContain("of 3");
  }
  expect(stepOf({ phase: "none", rolling_back: false })).toBe("No rotation is running.");
});
