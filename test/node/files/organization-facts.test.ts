// What `status` says of the end of a certificate and of a seal.

import { expect, test } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { certificateWarning, readSealSeen } from "../../../src/node/files/organization-facts.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

test("the end of a certificate is told in whole days, and less than one as such", () => {
  const now = Date.UTC(2026, 10, 21);
  const told = (days: number) =>
    certificateWarning({ certificate_not_after: new Date(now + days * 86_400_000).toISOString() }, now);
  expect([14, 13.5, 1.5, 0.5, -0.5].map(told)).toEqual([
    undefined,
    "The certificate ends in 13 days",
    "The certificate ends in 1 day",
    "The certificate ends within a day",
    "The certificate has expired",
  ]);
});

test("a seal that root ended is not shown as enforced until the next configuration", () => {
  using directory = temporaryDirectory();
  const file = join(directory.path, "seal.json");
  const seal = { number: 3, hash: "0".repeat(64), made_at: 0, objections: [], enforced: true as const };
  const state = { etag: "", config_version: 1, applied_at: "2026-11-29T00:00:00Z", seal };
  const unusable = { ...state, seal: { ...seal, number: 0 } };
  writeFileSync(file, "{}");
  expect(readSealSeen(directory.path, state)).toEqual(seal);
  rmSync(file);
  expect(readSealSeen(directory.path, state)).toBeUndefined();
  expect(readSealSeen(directory.path, unusable)?.number).toBe(0);
});
