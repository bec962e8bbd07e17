import { expect, test } from "bun:test";
import fc from "fast-check";
import { diff } from "../../../src/base/plan/diff.ts";

test("diff() can be applied by patch(1)", () => {
  const line = fc.constantFrom("a", "b", "c", "");
  const text = fc
    .tuple(fc.array(line, { maxLength: 40 }), fc.constantFrom("", "the end"))
    .map(([lines, end]) => lines.map((each) => `${each}\n`).join("") + end);
  fc.assert(
    fc.property(text, text, (before, after) => {
      expect(apply(before, diff(before, after))).toBe(after);
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

test("diff() shows a missing newline at the end", () => {
  expect(diff("a", "a\n")).toBe("@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n");
  expect(diff("a\n", "a")).toBe("@@ -1,1 +1,1 @@\n-a\n+a\n\\ No newline at end of file\n");
  expect(diff("a", "a")).toBe("");
});

/** A strict reader of hunks: context and removed lines must stand where the hunk says. */
function apply(before: string, hunks: string): string {
  const unended = "\n\\ No newline at end of file";
  const whole = before === "" || before.endsWith("\n") ? before : `${before}${unended}\n`;
  const split = (text: string) => (text === "" ? [] : text.slice(0, -1).split(/\n(?!\\)/));
  const lines = split(whole);
  let moved = 0;
  for (const hunk of hunks.split(/^(?=@@ )/m).filter((each) => each !== "")) {
    const [head = "", ...body] = split(hunk);
    const [, start = "", count = ""] = /^@@ -(\d+),(\d+) \+\d+,\d+ @@$/.exec(head) ?? [];
    const at = (Number(count) === 0 ? Number(start) : Number(start) - 1) + moved;
    const old = body.filter((line) => !line.startsWith("+")).map((line) => line.slice(1));
    const now = body.filter((line) => !line.startsWith("-")).map((line) => line.slice(1));
    expect(lines.slice(at, at + Number(count))).toEqual(old);
    lines.splice(at, Number(count), ...now);
    moved += now.length - old.length;
  }
  return lines
    .map((each) => `${each}\n`)
    .join("")
    .replace(`${unended}\n`, "");
}
