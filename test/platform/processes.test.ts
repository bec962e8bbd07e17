// When a process was started, as the systems tell it; what macOS has for it, Linux has too.

import { expect, test } from "bun:test";
import { ageSince, startOf, unixAge, unixStart } from "../../src/platform/processes.ts";

test("a start is the same at every look, another process has another, a dead one has none", async () => {
  const child = Bun.spawn(["/bin/sleep", "60"]);
  const own = startOf(process.pid);
  const started = startOf(child.pid);
  expect(started).toBeDefined();
  expect(startOf(child.pid)).toBe(started);
  expect(started).not.toBe(own);
  expect(ageSince(started ?? "")).toBeLessThan(60_000);
  child.kill("SIGKILL");
  await child.exited;
  expect(startOf(child.pid)).toBeUndefined();
});

test("ps tells it in one language and one time zone, wherever the machine has been carried", () => {
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
