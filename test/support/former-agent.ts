// The agent of an earlier commit, built from this repository's history, for tests of updates from it and of the two
// versions together.

import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { hostTarget } from "../../build.ts";
import { cacheDirectory } from "./cache.ts";
import { runSync } from "./debian.ts";
import { formerCommit, releaseKey } from "./releases.ts";

const root = join(import.meta.dir, "../..");
const directory = join(cacheDirectory, "former-agents", formerCommit);

/**
 * Returns the path of the former agent, version 0.1.0, which trusts releases signed by `releaseKey`. Builds it once, in a
 * private directory: test files run side by side.
 */
export function formerAgent(): string {
  const executable = join(directory, "agent");
  if (existsSync(executable)) return executable;
  mkdirSync(directory, { recursive: true });
  const work = mkdtempSync(join(directory, "build-"));
  try {
    runSync(["/bin/sh", "-euc", `git archive ${formerCommit} | tar -x -C "$0"`, work], { cwd: root });
    runSync([process.execPath, "install", "--frozen-lockfile", "--production"], { cwd: work });
    const options = { version: "0.1.0", releaseKeys: [releaseKey.text] };
    const call = [hostTarget(), join(work, "agent"), options].map((each) => JSON.stringify(each));
    const script = `const { build } = await import("./build.ts"); await build(${call.join(", ")});`;
    runSync([process.execPath, "-e", script], { cwd: work });
    renameSync(join(work, "agent"), executable);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return executable;
}
