import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync, chmodSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { planFile } from "../../src/base/plan-file.ts";
import { diff, quoteWord, renderPlan } from "../../src/base/plan.ts";

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

test("diff() can be applied by patch(1)", () => {
  const line = fc.constantFrom("a", "b", "c", "");
  const text = (lines: string[]) => lines.map((each) => `${each}\n`).join("");
  fc.assert(
    fc.property(fc.array(line, { maxLength: 40 }), fc.array(line, { maxLength: 40 }), (before, after) => {
      expect(apply(text(before), diff(text(before), text(after)))).toBe(text(after));
    }),
    { numRuns: 300 },
  );
});

test("diff() shows only what changes, with three lines around it", () => {
  const before = Array.from({ length: 100 }, (_, at) => `line ${at}\n`);
  const after = before.with(10, "ten\n").with(90, "ninety\n");
  const shown = diff(before.join(""), after.join(""));
  expect(shown.match(/^@@ .*$/gm)).toEqual(["@@ -8,7 +8,7 @@", "@@ -88,7 +88,7 @@"]);
  expect(shown.split("\n")).toHaveLength(2 * (1 + 6 + 2) + 1);
  expect(apply(before.join(""), shown)).toBe(after.join(""));
});

/** A strict reader of hunks: context and removed lines must stand where the hunk says. */
function apply(before: string, hunks: string): string {
  const lines = before === "" ? [] : before.slice(0, -1).split("\n");
  let moved = 0;
  for (const hunk of hunks.split(/^(?=@@ )/m).filter((each) => each !== "")) {
    const [head = "", ...body] = hunk.slice(0, -1).split("\n");
    const [, start = "", count = ""] = /^@@ -(\d+),(\d+) \+\d+,\d+ @@$/.exec(head) ?? [];
    const at = (Number(count) === 0 ? Number(start) : Number(start) - 1) + moved;
    const old = body.filter((line) => !line.startsWith("+")).map((line) => line.slice(1));
    const now = body.filter((line) => !line.startsWith("-")).map((line) => line.slice(1));
    expect(lines.slice(at, at + Number(count))).toEqual(old);
    lines.splice(at, Number(count), ...now);
    moved += now.length - old.length;
  }
  return lines.map((each) => `${each}\n`).join("");
}

test("quoteWord() leaves plain words and quotes the rest for a POSIX shell", () => {
  const run = (word: string) =>
    Bun.spawnSync(["/bin/sh", "-c", `printf %s ${quoteWord(word)}`]).stdout.toString();
  expect(quoteWord("/usr/bin/x=1")).toBe("/usr/bin/x=1");
  for (const word of ["a b", "it's", "$(id)", "`id`", '"', "\\", "*", "é"]) expect(run(word)).toBe(word);
});
