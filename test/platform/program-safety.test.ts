// Which programs a root service may run, with real owners, modes and links.

import { dlopen, FFIType, ptr } from "bun:ffi";
import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { foreignFile, foreignPlace, safeCommand, whyUnsafe } from "../../src/platform/program-safety.ts";
import { runSync } from "../support/debian.ts";
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

const safetyModule = join(import.meta.dir, "../../src/platform/program-safety.ts");

/** acl(5), as the kernel stores it: rwx for the owner and the named one, r-x for the owning group and others. */
function setAccessList(path: string, named: number, id: number): void {
  const none = 0xffff_ffff;
  const [owner, owningGroup, mask, other] = [1, 4, 16, 32];
  const entries = [
    [owner, 7, none],
    [named, 7, id],
    [owningGroup, 5, none],
    [mask, 7, none],
    [other, 5, none],
  ].toSorted(([a = 0], [b = 0]) => a - b);
  const bytes = new DataView(new ArrayBuffer(4 + 8 * entries.length));
  bytes.setUint32(0, 2, true);
  for (const [index, [tag = 0, permissions = 0, qualifier = 0]] of entries.entries()) {
    bytes.setUint16(4 + 8 * index, tag, true);
    bytes.setUint16(6 + 8 * index, permissions, true);
    bytes.setUint32(8 + 8 * index, qualifier, true);
  }
  const { setxattr } = dlopen("libc.so.6", {
    setxattr: {
      args: [FFIType.ptr, FFIType.ptr, FFIType.ptr, FFIType.u64, FFIType.i32],
      returns: FFIType.i32,
    },
  }).symbols;
  const text = (value: string) => ptr(Buffer.from(`${value}\0`));
  const name = text("system.posix_acl_access");
  expect(setxattr(text(path), name, ptr(new Uint8Array(bytes.buffer)), bytes.byteLength, 0)).toBe(0);
}

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

  test("refuses what an access control list lets another user or a group with members write to", () => {
    const bin = join(directory, "bin");
    const [user, group] = [2, 8];
    // The mask of the list is in the group's bits of the mode, and the owning group, root, may only read.
    for (const [named, id, reason] of [
      [user, 1000, `an access control list lets user 1000 write to ${bin}`],
      [group, 50_000, `an access control list lets group 50000 write to ${bin}`],
      [user, 0, undefined],
    ] as const) {
      setAccessList(bin, named, id);
      expect([statSync(bin).mode & 0o777, why()]).toEqual([0o775, reason]);
    }
    setAccessList(bin, user, 1000);
    runSync(["sh", "-c", safeCommand(program) ?? "false"]);
    expect([why(), safeCommand(program)]).toEqual([undefined, undefined]);
  });

  test("refuses what other members of the group root can write to", () => {
    const bin = join(directory, "bin");
    chmodSync(bin, 0o775);
    const judge = `console.log(String(require(${JSON.stringify(safetyModule)}).whyUnsafe(${JSON.stringify(program)}, { platform: "linux", env: {} })))`;
    for (const [members, reason] of [
      ["", "undefined"],
      ["root", "undefined"],
      ["root,ada", `group 0 can write to ${bin}`],
    ] as const) {
      const groups = join(directory, "group");
      writeFileSync(groups, `root:x:0:${members}\n`);
      const script = 'mount --bind "$1" /etc/group && exec "$2" -e "$3"';
      const inside = ["unshare", "--mount", "sh", "-c", script, "sh", groups, process.execPath, judge];
      expect(runSync(inside).trim()).toBe(reason);
    }
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

  test("names the remedy of a directory that users can write to, also by a link in it", () => {
    writeFileSync(join(directory, "target"), "");
    symlinkSync("target", join(directory, "link"));
    expect(foreignFile(join(directory, "link"))).toBeUndefined();
    chmodSync(directory, 0o777);
    expect(foreignFile(join(directory, "link"))).toEqual(foreignPlace(directory));
  });
});
