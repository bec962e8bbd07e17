import { afterAll, describe, expect, test } from "bun:test";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AppError } from "../src/errors.ts";
import { readTextIfThere, writeFileAtomic, writeNewFile } from "../src/files.ts";

const directory = mkdtempSync(join(tmpdir(), "files-"));
afterAll(() => rmSync(directory, { recursive: true }));

describe("writeFileAtomic()", () => {
  test("replaces the content with exactly this mode under any umask, and leaves no other file", () => {
    const path = join(directory, "a", "key");
    mkdirSync(join(directory, "a"));
    const before = process.umask(0);
    try {
      writeFileAtomic(path, "one", 0o600);
      process.umask(0o777);
      writeFileAtomic(path, new Uint8Array([50]), 0o644);
    } finally {
      process.umask(before);
    }
    expect(readFileSync(path, "utf8")).toBe("2");
    expect(statSync(path).mode & 0o7777).toBe(0o644);
    expect(readdirSync(join(directory, "a"))).toEqual(["key"]);
  });

  test("replaces a symbolic link, never its target", () => {
    const target = join(directory, "target");
    writeFileSync(target, "untouched");
    symlinkSync(target, join(directory, "link"));
    writeFileAtomic(join(directory, "link"), "new", 0o600);
    expect(readFileSync(target, "utf8")).toBe("untouched");
  });

  test("an error names the file and the reason", () => {
    expect(() => writeFileAtomic(join(directory, "missing", "x"), "", 0o600)).toThrow(AppError);
  });
});

test("writeNewFile() refuses an existing file or link", () => {
  symlinkSync("/etc/passwd", join(directory, "planted"));
  expect(() => writeNewFile(join(directory, "planted"), "x", 0o600)).toThrow("EEXIST");
});

test("readTextIfThere() distinguishes a missing file from an unreadable one", () => {
  expect(readTextIfThere(join(directory, "absent"))).toBeUndefined();
  expect(() => readTextIfThere(directory)).toThrow("it is a directory, not a file");
});
