import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync, chmodSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { planFile } from "../../../src/base/plan/plan-file.ts";
import { renderPlan } from "../../../src/base/plan/plan.ts";

const directory = mkdtempSync(join(tmpdir(), "plan-"));
afterAll(() => rmSync(directory, { recursive: true }));

describe("planFile()", () => {
  test("says created, changed and same, by content and by mode", () => {
    const path = join(directory, "unit");
    expect(planFile(path, "a\n", 0o644)).toEqual({
      step: "file",
      path,
      mode: "0644",
      change: "created",
      diff: "@@ -0,0 +1,1 @@\n+a\n",
    });
    writeFileSync(path, "a\n");
    chmodSync(path, 0o644);
    expect(planFile(path, "a\n", 0o644)).toEqual({ step: "file", path, mode: "0644", change: "same" });
    expect(planFile(path, "a\n", 0o600)).toMatchObject({ change: "changed", mode: "0600" });
    expect(planFile(path, "b\n", 0o644)).toMatchObject({
      change: "changed",
      diff: "@@ -1,1 +1,1 @@\n-a\n+b\n",
    });
  });

  test("never shows the content of a secret file", () => {
    const path = join(directory, "secret");
    writeFileSync(path, "old-canary\n");
    expect(JSON.stringify(planFile(path, "new-canary\n", 0o600, { secret: true }))).not.toContain("canary");
    expect(
      renderPlan([planFile(join(directory, "none"), "new-canary", 0o600, { secret: true })]),
    ).not.toContain("canary");
  });
});
