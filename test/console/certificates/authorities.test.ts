// What the console says about the CAs while a rotation runs.

import { expect, test } from "bun:test";
import type { Event as AuditEvent } from "../../../src/api/events.ts";
import {
  caWord,
  lastSteering,
  progressOf,
  rotationBegins,
  spansOf,
  stepOf,
  trustOf,
  type Authority,
  type Rotation,
} from "../../../src/console/certificates/authorities.ts";

const ca = (state: Authority["state"], trusted = true): Authority => ({
  fingerprint: "ab",
  kind: "overlay",
  state,
  trusted,
  offline: false,
  not_before: "2026-01-01T00:00:00Z",
  not_after: "2027-01-01T00:00:00Z",
});
const rotation = (phase: Rotation["phase"], waiting: number): Rotation => ({
  phase,
  paused: false,
  rolling_back: false,
  waiting_for: Array.from({ length: waiting }, (_, at) => at),
  waiting_for_names: [],
  awaits_signers: false,
  next_step_at: null,
  auto: false,
});

test("nodes trust a new CA once all have confirmed it", () => {
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

test("a CA that a rollback withdrew is not a former one, in the rollback and after it", () => {
  const old = ca("active");
  const fresh = { ...ca("former"), not_before: "2026-06-01T00:00:00Z" };
  expect(caWord(fresh, [old, fresh])).toBe("withdrawn");
  expect(caWord(old, [old, fresh])).toBe("active");
  // After a rotation, the one from before is a former one. The other kind's is no measure.
  const now = { ...fresh, state: "active" as const };
  expect(caWord(ca("former"), [ca("former"), now])).toBe("former");
  expect(caWord(fresh, [{ ...old, kind: "x509" }, fresh])).toBe("former");
});

test("a CA is a bar until its successor began; the next one is planned while none is rotated", () => {
  const year = (of: number) => Date.UTC(of, 0);
  const at = (from: number, state: Authority["state"], to = from + 2): Authority => ({
    ...ca(state),
    fingerprint: `${from}`,
    not_before: new Date(year(from)).toISOString(),
    not_after: new Date(year(to)).toISOString(),
  });
  const cas = [at(2025, "former"), at(2026, "active"), { ...at(2026, "active"), kind: "x509" as const }];
  const now = Date.UTC(2026, 6);
  const calm = { ...rotation("none", 0), auto: true };
  const spans = (of: Rotation) =>
    spansOf("overlay", { cas, rotation: of }, now).map(({ kind, from, to }) => ({ kind, from, to }));
  const drawn: ReturnType<typeof spans> = [
    { kind: "former", from: year(2025), to: year(2026) },
    { kind: "active", from: year(2026), to: year(2028) },
  ];
  const planned = year(2028) - 180 * 86_400_000;
  expect(spans(calm)).toEqual([
    ...drawn,
    { kind: "planned", from: planned, to: planned + year(2028) - year(2026) },
  ]);
  expect(spans(rotation("none", 0))).toEqual(drawn);
  expect(spans({ ...rotation("issue", 3), auto: true })).toEqual(drawn);
});

test("the steps of a rotation are its progress", () => {
  expect(progressOf(rotation("none", 0))).toEqual(["later", "later", "later"]);
  expect(progressOf(rotation("trust", 2))).toEqual(["here", "later", "later"]);
  expect(progressOf(rotation("retire", 2))).toEqual(["done", "done", "here"]);
});

test("who started a rotation, or rolled it back, is in the newest event that says so", () => {
  const event = (id: number, type: string, action?: string): AuditEvent => ({
    id,
    at: "2026-01-01T00:00:00Z",
    type,
    actor: { kind: "person", id: 1, ip: null },
    subject: "organization/1",
    before: null,
    after: action === undefined ? null : { action },
    hash: "",
  });
  const started = [
    event(3, "ca.rotated", "advance"),
    event(2, "node.renewed"),
    event(1, "ca.rotated", "start"),
  ];
  expect(lastSteering(started)?.id).toBe(1);
  expect(lastSteering([event(4, "ca.rotated", "rollback"), ...started])?.id).toBe(4);
  expect(lastSteering([event(2, "node.renewed", "start")])).toBeUndefined();
});

test("a rotation begins with its own CAs, whatever offline CA signers add later", () => {
  const cas = [
    { offline: false, not_before: "2026-11-01T00:00:00.000Z" },
    { offline: false, not_before: "2026-11-20T00:00:00.000Z" },
    { offline: true, not_before: "2026-11-25T00:00:00.000Z" },
  ];
  expect(rotationBegins(cas)).toBe(Date.parse("2026-11-20T00:00:00.000Z"));
});
