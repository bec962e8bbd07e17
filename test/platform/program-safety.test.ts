// Which programs a root service may run, with real owners, modes and links.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { whyUnsafe } from "../../src/platform/program-safety.ts";
import { asRoot } from "../support/engines.ts";

const linux = { platform: "linux", env: {} };

test("refuses programs hidden by ProtectHome and PrivateTmp, present or missing", () => {
  for (const path of [
    "/home/ada/agent",
    "/root/bin/agent",
    "/run/user/1000/agent",
    "/tmp/agent",
    "/var/tmp/x",
  ])
    expect(whyUnsafe(path, linux)).toStartWith("services cannot see files below /");
  expect(whyUnsafe("/homestead/agent", linux)).toBeUndefined();
});

test("on Windows only the directories for programs are safe", () => {
  const windows = {
    platform: "win32",
    env: { ProgramFiles: "C:\\Program Files", SystemRoot: "C:\\Windows" },
  };
  expect(whyUnsafe("c:\\program files\\overlay-agent\\agent.exe", windows)).toBeUndefined();
  for (const path of [
    "C:\\Users\\ada\\agent.exe",
    "C:\\Program Files\\..\\Users\\x.exe",
    "C:\\Program Filesx\\a",
  ])
    expect(whyUnsafe(path, windows)).toContain("outside C:\\Program Files");
});

asRoot("owners and modes", () => {
  let directory = "";
  let program = "";
  beforeEach(() => {
    directory = mkdtempSync("/opt/agent-test-");
    chmodSync(directory, 0o755);
    mkdirSync(join(directory, "bin"), { mode: 0o755 });
    program = join(directory, "bin/agent");
    writeFileSync(program, "", { mode: 0o755 });
  });
  afterEach(() => rmSync(directory, { recursive: true }));
  const why = (path = program) => whyUnsafe(path, linux);

  test("accepts a program that only root can replace, present or missing", () => {
    expect(why()).toBeUndefined();
    expect(why(join(directory, "new/bin/agent"))).toBeUndefined();
  });

  test("names the owner of the file, or of any directory above it, who is not root", () => {
    for (const path of [program, join(directory, "bin"), directory]) {
      chownSync(path, 12_345, 0);
      expect(why()).toBe(`${path} belongs to user 12345, not to root`);
      chownSync(path, 0, 0);
    }
  });

  test("refuses what every user can write to, including sticky directories", () => {
    for (const [path, mode] of [
      [program, 0o757],
      [join(directory, "bin"), 0o777],
      [directory, 0o1777],
    ] as const) {
      chmodSync(path, mode);
      expect(why()).toBe(`every user can write to ${path}`);
      chmodSync(path, 0o755);
    }
  });

  test("refuses what a group with members can write to", () => {
    const bin = join(directory, "bin");
    chmodSync(bin, 0o775);
    expect(why()).toBeUndefined();
    chownSync(bin, 0, 50_000);
    expect(why()).toBe(`group 50000 can write to ${bin}`);
  });

  test("checks every step of a chain of links", () => {
    const other = join(directory, "other");
    mkdirSync(other);
    const link = join(directory, "link");
    symlinkSync("other/second", link);
    symlinkSync(program, join(other, "second"));
    expect(why(link)).toBeUndefined();
    chownSync(other, 12_345, 0);
    expect(why(link)).toBe(`${other} belongs to user 12345, not to root`);
    symlinkSync("/home/ada/agent", join(directory, "home"));
    expect(why(join(directory, "home"))).toBe("services cannot see files below /home");
  });
});
