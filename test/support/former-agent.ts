// The agent of an earlier commit, built from this repository's history, for tests of the two versions together.

import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { runSync } from "./debian.ts";

/** The earliest commit whose agents and servers must work with those of today. */
const formerCommit = "559ec55";

const root = join(import.meta.dir, "../..");
const directory = join(root, ".cache/former-agents", formerCommit);

/** Returns the path of the former executable. Builds it once, in a private directory: test files run side by side. */
export function formerAgent(): string {
  const executable = join(directory, "agent");
  if (existsSync(executable)) return executable;
  mkdirSync(directory, { recursive: true });
  const work = mkdtempSync(join(directory, "build-"));
  try {
    runSync(["/bin/sh", "-euc", `git archive ${formerCommit} | tar -x -C "$0"`, work], { cwd: root });
    runSync([process.execPath, "install", "--frozen-lockfile", "--production"], { cwd: work });
    runSync([process.execPath, "build.ts", "--outfile", "agent"], { cwd: work });
    renameSync(join(work, "agent"), executable);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return executable;
}
