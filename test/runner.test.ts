// How the runner of the checks (test/run.ts) orders test files, and the lists that it goes by.

import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import { countsOf } from "./support/junit.ts";
import { digest, formatRecord, isDue, parseRecord, passedEntries } from "./support/last-soak.ts";
import { runAgain, runSideBySide } from "./support/side-by-side.ts";
import { until } from "./support/until.ts";
import { temporaryDirectory } from "./support/temporary.ts";
import {
  alone,
  batchesOf,
  bySources,
  filesFor,
  longest,
  olderEngines,
  type Kind,
} from "./support/test-files.ts";

test("jobs run side by side up to the width, and those marked alone run after them, one at a time", async () => {
  const running = new Set<string>();
  const begun: string[] = [];
  const beside = new Map<string, number>();
  const job = (name: string, isAlone: boolean) => ({
    alone: isAlone,
    async run() {
      begun.push(name);
      running.add(name);
      for (let turn = 0; turn < 3; turn++) {
        for (const each of running) beside.set(each, Math.max(beside.get(each) ?? 0, running.size - 1));
        await new Promise((resolve) => setImmediate(resolve));
      }
      running.delete(name);
    },
  });
  const names = ["a", "x", "b", "c", "y", "d", "e"];
  await runSideBySide(
    names.map((name) => job(name, "xy".includes(name))),
    3,
  );
  expect(begun).toEqual(["a", "b", "c", "d", "e", "x", "y"]);
  expect(Math.max(...beside.values())).toBe(2);
  expect([beside.get("x"), beside.get("y")]).toEqual([0, 0]);
});

test("a job begins beside others only when there is room", async () => {
  const asked: number[] = [];
  const { promise: made, resolve } = Promise.withResolvers<void>();
  let begun = 0;
  const jobs = Array.from({ length: 5 }, () => ({
    async run() {
      begun++;
      await made;
    },
  }));
  let others = () => 0;
  const all = runSideBySide(jobs, 4, async (count) => {
    others = count;
    asked.push(count());
    if (count() >= 2) await made;
  });
  await Bun.sleep(10);
  expect([begun, asked, others()]).toEqual([2, [0, 1, 2], 2]);
  resolve();
  await all;
  expect(begun).toBe(5);
});

test("who waits for room sees when the others have ended", async () => {
  const ends = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let begun = 0;
  const jobs = Array.from({ length: 3 }, (_, at) => ({
    async run() {
      begun++;
      await ends[at]?.promise;
    },
  }));
  const all = runSideBySide(jobs, 3, async (others) => {
    while (others() >= 2) await Bun.sleep(1);
  });
  await Bun.sleep(10);
  expect(begun).toBe(2);
  ends[0]?.resolve();
  await until(() => begun === 3);
  ends[1]?.resolve();
  await all;
});

test("every test file is run once, the longest first; those with a rule of their own share no process", () => {
  const batches = (["unit", "e2e", "soak"] as Kind[]).flatMap((kind) => batchesOf(kind));
  const present = [...new Glob("**/*.test.ts").scanSync(import.meta.dir)];
  expect(batches.flat().toSorted()).toEqual(present.toSorted());
  expect(batchesOf("e2e")[0]).toEqual(longest.filter((file) => file.startsWith("e2e/")).slice(0, 1));
  const ruled = (file: string) => file in alone || file.startsWith("e2e/");
  expect(batches.filter((files) => files.length > 1 && files.some(ruled))).toEqual([]);
});

test("the runner's lists name files that exist, those that run alone with a reason", () => {
  const listed = [...longest, ...Object.keys(alone)];
  expect(listed.filter((file) => !existsSync(join(import.meta.dir, file)))).toEqual([]);
  expect(new Set(longest).size).toBe(longest.length);
  for (const reason of Object.values(alone)) expect(reason).toMatch(/\w+ \w+/);
});

test("what runs by its sources names tests and sources that exist", () => {
  const root = join(import.meta.dir, "..");
  for (const [name, globs] of Object.entries(bySources)) {
    const files = filesFor(name);
    expect(files).not.toEqual([]);
    expect(files.filter((file) => !existsSync(join(import.meta.dir, file)))).toEqual([]);
    const matches = (glob: string) => [...new Glob(glob).scanSync(root)];
    for (const glob of globs) {
      const [, before = "", choices, after = ""] = /^(.*)\{(.*)\}(.*)$/.exec(glob) ?? [];
      const each = choices === undefined ? [glob] : choices.split(",").map((one) => before + one + after);
      expect(each.filter((one) => matches(one).length === 0)).toEqual([]);
      // Choices with a slash match nothing.
      expect(matches(glob).length).toBe(each.flatMap(matches).length);
    }
  }
});

test("comments and types change no digest, code and other files do", async () => {
  using directory = temporaryDirectory();
  const digestWith = async (path: string, text: string) => {
    await Bun.write(join(directory.path, path), text);
    return digest([path], directory.path);
  };
  const code = "export const a = (b: number): number => b + 1;\n";
  const known = await digestWith("a.ts", code);
  expect(await digestWith("a.ts", `// Why.\n${code}`)).toBe(known);
  expect(await digestWith("a.ts", code.replace("): number", ")"))).toBe(known);
  expect(await digestWith("a.ts", code.replace("1", "2"))).not.toBe(known);
  const page = "export const c = <b>{1}</b>;\n";
  expect(await digestWith("c.tsx", `/** What. */\n${page}`)).toBe(await digestWith("c.tsx", page));
  const script = "a=1\n";
  expect(await digestWith("install", `# Why.\n${script}`)).not.toBe(await digestWith("install", script));
});

test("a digest changes with each file that a pattern matches, and with no other", async () => {
  using directory = temporaryDirectory();
  const write = (path: string, text: string) => Bun.write(join(directory.path, path), text);
  await write("src/one/deep/a.ts", "a");
  await write("src/two.ts", "b");
  const now = () => digest(["src/one/**", "src/two.ts"], directory.path);
  const met = [now()];
  for (const [path, text] of [
    ["src/one/deep/a.ts", "c"],
    ["src/two.ts", "c"],
    ["src/one/new.ts", "b"],
  ] as const) {
    await write(path, text);
    met.push(now());
  }
  expect(new Set(met).size).toBe(4);
  await write("src/three.ts", "d");
  expect(now()).toBe(met[3] ?? "");
});

test("the record keeps what passed; an entry without its line, or with another digest, is due", () => {
  const record = new Map([["e2e/a.test.ts#part", { digest: "1f", commit: "abc" }]]);
  expect(parseRecord(formatRecord(record))).toEqual(record);
  expect(isDue("no such entry")).toBe(true);
  const before = new Map(Object.keys(bySources).map((name) => [name, ""]));
  expect(passedEntries(before, ["soak/windows.test.ts", "e2e/arm64.test.ts"])).toEqual([
    "e2e/arm64.test.ts",
    "e2e/windows.test.ts",
  ]);
  const older = passedEntries(before, filesFor(olderEngines));
  expect(older).toContain(olderEngines);
  expect(passedEntries(before, filesFor(olderEngines).slice(1))).not.toContain(olderEngines);
});

test("what failed beside others is run again and counts as it ends then, unless more failed than is usual", async () => {
  const run = async (what: string) => `${what} again`;
  expect(await runAgain([["a", "failed"]], 2, run)).toEqual([["a", "failed", "a again"]]);
  const three = ["a", "b", "c"].map((what) => [what, "failed"] as const);
  expect(await runAgain(three, 2, run)).toEqual(three.map(([what]) => [what, "failed", "failed"]));
});

test("a report tells how many tests passed, and the reason of each failure as it reads", () => {
  const report = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="bun test" tests="4" assertions="3" failures="1" skipped="1" time="0.1">
  <testcase name="passes" classname="" time="0" file="test/a.test.ts" line="1" assertions="1" />
  <testcase name="of a &gt; b" classname="of a" time="0" file="test/a.test.ts" line="2" assertions="1">
    <failure type="AssertionError" message="Expected: &quot;x&quot;&#10;Received: &lt;y&gt;" />
  </testcase>
</testsuites>`;
  const reasons = ['test/a.test.ts: of a > b: Expected: "x" Received: <y>'];
  expect(countsOf(report, 1)).toEqual({ passed: 2, failed: 1, skipped: 1, reasons });
  expect(countsOf("", 137)).toEqual({ passed: 0, failed: 1, skipped: 0, reasons: [] });
});
