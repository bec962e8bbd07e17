// Start times of processes on each system. The macOS way (ps) works on Linux too.

import { expect, test } from "bun:test";
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { readTextIfThere } from "../../src/base/files.ts";
import {
  ageSince,
  findProcess,
  kernelThreads,
  startOf,
  unixAge,
  unixFind,
  unixStart,
} from "../../src/platform/processes.ts";
import { temporaryDirectory } from "../support/temporary.ts";

test("a start time never changes, and an ended process has none", async () => {
  const child = Bun.spawn(["/bin/sleep", "60"]);
  const started = startOf(child.pid);
  expect(started).toBeDefined();
  expect(startOf(child.pid)).toBe(started);
  expect(ageSince(started ?? "")).toBeLessThan(60_000);
  child.kill("SIGKILL");
  await child.exited;
  expect(startOf(child.pid)).toBeUndefined();
});

test("the start time from ps does not depend on language or time zone", () => {
  const [zone, language] = [process.env["TZ"], process.env["LC_ALL"]];
  const before = unixStart(process.pid);
  process.env["TZ"] = "Asia/Tokyo";
  process.env["LC_ALL"] = "de_DE.UTF-8";
  const after = unixStart(process.pid);
  for (const [name, value] of [
    ["TZ", zone],
    ["LC_ALL", language],
  ] as const) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  expect(before).toMatch(/^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}$/);
  expect(after).toBe(before ?? "");
  const age = unixAge(before ?? "", Date.now());
  expect(Math.abs(age - performance.now())).toBeLessThan(60_000);
});

test("a thread of the kernel has no arguments, and no program is taken for one", () => {
  const threads = kernelThreads();
  // It may have ended meanwhile.
  const words = [...threads].map((pid) => readTextIfThere(`/proc/${pid}/cmdline`) ?? "");
  expect(words.join("")).toBe("");
  expect([threads.has(process.pid), threads.has(process.ppid)]).toEqual([false, false]);
});

test("finds a process by its arguments, even with spaces in its path, but no process that only mentions them", async () => {
  using directory = temporaryDirectory();
  const program = join(directory.path, "a program");
  copyFileSync("/bin/sleep", program);
  const words = ["900", `100.${process.pid}`];
  const naming = Bun.spawn(["/bin/bash", "-c", "read", ...words], { stdin: "pipe" });
  expect([findProcess(words), unixFind(words)]).toEqual([undefined, undefined]);
  const child = Bun.spawn([program, ...words]);
  // It is there before it has become its program.
  while (findProcess(words) === undefined) await Bun.sleep(5);
  expect([findProcess(words), unixFind(words)]).toEqual([child.pid, child.pid]);
  for (const each of [child, naming]) {
    each.kill("SIGKILL");
    await each.exited;
  }
  expect([findProcess(words), unixFind(words)]).toEqual([undefined, undefined]);
});
