// Replaces an executable in a real directory: there is always the old or the new one, and the former one is kept.

import { expect, test } from "bun:test";
import {
  linkSync,
  lstatSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import {
  bringBack,
  keepFormer,
  keptPath,
  linkCandidate,
  rollBack,
  swapIn,
  sweepCandidates,
  writeCandidate,
} from "../../src/release/replace.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const text = (path: string) => readFileSync(path, "utf8");

test("the first executable gets its mode, and no other file remains", () => {
  using directory = temporaryDirectory();
  const target = join(directory.path, "bin/agent");
  swapIn(writeCandidate(target, Buffer.from("one")), target);
  expect(text(target)).toBe("one");
  expect(statSync(target).mode & 0o7777).toBe(0o755);
  expect(readdirSync(join(directory.path, "bin"))).toEqual(["agent"]);
});

test("a replaced executable is kept, and two rollbacks cancel out", () => {
  using directory = temporaryDirectory();
  const target = join(directory.path, "agent");
  for (const version of ["one", "two", "three"]) swapIn(writeCandidate(target, Buffer.from(version)), target);
  expect([text(target), text(keptPath(target))]).toEqual(["three", "two"]);
  rollBack(target);
  expect([text(target), text(keptPath(target))]).toEqual(["two", "three"]);
  rollBack(target);
  expect([text(target), text(keptPath(target))]).toEqual(["three", "two"]);
  expect(readdirSync(directory.path).sort()).toEqual(["agent", "agent.old"]);
});

test("a run after a kill completes the replacement and leaves no other file", () => {
  using directory = temporaryDirectory();
  const target = join(directory.path, "agent");
  for (const version of ["one", "two"]) swapIn(writeCandidate(target, Buffer.from(version)), target);
  keepFormer(target);
  keepFormer(target);
  bringBack(target);
  bringBack(target);
  expect([text(target), text(keptPath(target))]).toEqual(["two", "two"]);
  expect(readdirSync(directory.path).sort()).toEqual(["agent", "agent.old"]);
});

test("links are replaced and kept as links", () => {
  using directory = temporaryDirectory();
  const target = join(directory.path, "overlay");
  symlinkSync("/usr/bin/true", target);
  swapIn(linkCandidate(target, "/usr/bin/env"), target);
  expect([readlinkSync(target), readlinkSync(keptPath(target))]).toEqual(["/usr/bin/env", "/usr/bin/true"]);
  swapIn(writeCandidate(target, Buffer.from("file")), target);
  expect(lstatSync(target).isSymbolicLink()).toBe(false);
  rollBack(target);
  expect(readlinkSync(target)).toBe("/usr/bin/env");
});

test("a run after a kill between keeping and replacing leaves no other file", () => {
  using directory = temporaryDirectory();
  const target = join(directory.path, "agent");
  writeFileSync(target, "one");
  linkSync(target, keptPath(target));
  swapIn(writeCandidate(target, Buffer.from("two")), target);
  expect([text(target), text(keptPath(target))]).toEqual(["two", "one"]);
  expect(readdirSync(directory.path).sort()).toEqual(["agent", "agent.old"]);
});

test("without a kept executable, a rollback fails and changes nothing", () => {
  using directory = temporaryDirectory();
  const target = join(directory.path, "agent");
  writeFileSync(target, "only");
  expect(() => rollBack(target)).toThrow("no previous version");
  expect(text(target)).toBe("only");
});

test("deletes candidates of killed runs, and keeps those of running ones", () => {
  using directory = temporaryDirectory();
  const target = join(directory.path, "agent");
  const dead = Bun.spawnSync(["true"]).pid;
  const living = writeCandidate(target, Buffer.from("mine"));
  writeFileSync(join(directory.path, `.agent.new.${dead}`), "half");
  writeFileSync(join(directory.path, `.agent.new.${dead}.old`), "half");
  writeFileSync(join(directory.path, "agent.conf"), "another's");
  sweepCandidates(target);
  expect(readdirSync(directory.path).sort()).toEqual([`.agent.new.${process.pid}`, "agent.conf"]);
  expect(text(living)).toBe("mine");
});
