// Replacing an executable in a real directory: the old one or the new one, and the former one kept.

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

test("the first one is placed with its mode, and nothing else is left", () => {
  using directory = temporaryDirectory();
  const target = join(directory.path, "bin/agent");
  swapIn(writeCandidate(target, Buffer.from("one")), target);
  expect(text(target)).toBe("one");
  expect(statSync(target).mode & 0o7777).toBe(0o755);
  expect(readdirSync(join(directory.path, "bin"))).toEqual(["agent"]);
});

test("a replaced one is kept, and rolling back twice is where one began", () => {
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

test("what was begun before a kill is done again without a trace", () => {
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

test("killed between the keeping and the replacing, when both names are one file: the next run leaves nothing over", () => {
  using directory = temporaryDirectory();
  const target = join(directory.path, "agent");
  writeFileSync(target, "one");
  linkSync(target, keptPath(target));
  swapIn(writeCandidate(target, Buffer.from("two")), target);
  expect([text(target), text(keptPath(target))]).toEqual(["two", "one"]);
  expect(readdirSync(directory.path).sort()).toEqual(["agent", "agent.old"]);
});

test("without a kept one, rolling back says so and changes nothing", () => {
  using directory = temporaryDirectory();
  const target = join(directory.path, "agent");
  writeFileSync(target, "only");
  expect(() => rollBack(target)).toThrow("no former version");
  expect(text(target)).toBe("only");
});

test("what killed runs left is swept, what living ones write is not", () => {
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
