// The agent of an earlier commit updates itself to a release of this build, which then prefers the smaller archive.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { hostTarget } from "../../build.ts";
import { cleanEnvironment } from "../support/agent.ts";
import { formerAgent } from "../support/former-agent.ts";
import { buildVersion, makeRelease, releaseKey, standIn } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const work = temporaryDirectory();
afterAll(() => work[Symbol.dispose]());
const at = (...names: string[]) => join(work.path, ...names);
const agent = at("bin/agent");
const Version = v.pipe(v.string(), v.parseJson(), v.object({ version: v.string() }));

function run(...words: string[]): { status: number; stdout: string } {
  const argv = [agent, ...words, "--json"];
  const { exitCode, stdout } = Bun.spawnSync(argv, { env: cleanEnvironment(), stdin: "ignore" });
  return { status: exitCode, stdout: stdout.toString() };
}

const update = (...flags: string[]) => run("self-update", "--state-db-path", at("state/state.db"), ...flags);
const version = () => v.parse(Version, run("version", "--no-check").stdout).version;

/** Removes every archive with this suffix, so that only an update from the other one can succeed. */
function keepOnly(release: string, suffix: string): void {
  const others = readdirSync(at(release)).filter((name) => name.includes(".tar.") && !name.endsWith(suffix));
  expect(others).toHaveLength(1);
  for (const name of others) rmSync(at(release, name));
}

beforeAll(async () => {
  mkdirSync(at("bin"));
  copyFileSync(formerAgent(), agent);
  const next = readFileSync(buildVersion(work.path, "0.2.0"));
  const target = hostTarget();
  await makeRelease(
    at("next"),
    { version: "0.2.0", sequence: 2, executables: { [target]: next } },
    releaseKey,
  );
  const later = { version: "0.3.0", sequence: 3, executables: { [target]: standIn("0.3.0", "exit 0") } };
  await makeRelease(at("later"), later, releaseKey);
  keepOnly("next", ".gz");
  keepOnly("later", ".zst");
}, 600_000);

test("the former agent updates from .tar.gz, rolls back, and its successor updates from .tar.zst", () => {
  expect(version()).toBe("0.1.0");
  expect(update("--release-url", at("later"), "--check").status).toBe(10);
  expect(update("--release-url", at("next"))).toMatchObject({ status: 0 });
  expect(version()).toBe("0.2.0");
  expect(update("--rollback")).toMatchObject({ status: 0 });
  expect(version()).toBe("0.1.0");
  expect(update("--rollback")).toMatchObject({ status: 0 });
  expect(update("--release-url", at("later"))).toMatchObject({ status: 0 });
  expect(version()).toBe("0.3.0");
}, 120_000);
