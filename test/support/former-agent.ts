// The agent of an earlier commit, built from this repository's history, for tests of updates from it.

import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { hostTarget } from "../../build.ts";
import { runSync } from "./debian.ts";
import { makeReleaseKey } from "./releases.ts";

/** The earliest commit from which an agent must be able to update itself. */
const formerCommit = "559ec55";

/** Fixed, because the former agent is built once and trusts this key. */
export const formerKey = makeReleaseKey(Buffer.alloc(32, formerCommit));

const root = join(import.meta.dir, "../..");
const directory = join(root, ".cache/former-agents", formerCommit);

/** Returns the path of the former agent, version 0.1.0, which trusts releases signed by `formerKey`. */
export function formerAgent(): string {
  const executable = join(directory, "agent");
  if (existsSync(executable)) return executable;
  const source = join(directory, "source");
  mkdirSync(source, { recursive: true });
  runSync(["/bin/sh", "-euc", `git archive ${formerCommit} | tar -x -C "$0"`, source], { cwd: root });
  runSync([process.execPath, "install", "--frozen-lockfile", "--production"], { cwd: source });
  const options = { version: "0.1.0", releaseKeys: [formerKey.text] };
  const script = `const { build } = await import("./build.ts");
    await build(${[hostTarget(), executable, options].map((each) => JSON.stringify(each)).join(", ")});`;
  runSync([process.execPath, "-e", script], { cwd: source });
  return executable;
}
