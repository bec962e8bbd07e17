// The executable as a build artifact: reproducible, a single file, and independent of files in the current directory.

import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build, hostTarget } from "../../build.ts";
import { buildAgent, runAgent } from "../support/agent.ts";
import { installMissing } from "../support/debian.ts";
import { temporaryDirectory } from "../support/temporary.ts";

async function sha256(path: string): Promise<string> {
  return new Bun.CryptoHasher("sha256").update(await Bun.file(path).arrayBuffer()).digest("hex");
}

test("two builds are byte-identical under different names, and leave no other file", async () => {
  using directory = temporaryDirectory();
  const [one, two] = [join(directory.path, "a/agent"), join(directory.path, "b/other")];
  await build(hostTarget(), one);
  await build(hostTarget(), two);
  expect(await sha256(one)).toBe(await sha256(two));
  expect(readdirSync(join(directory.path, "a"))).toEqual(["agent"]);
});

test("an additional C library does not change the target of this machine", () => {
  expect(installMissing(["/lib/ld-musl-x86_64.so.1"])).toBeUndefined();
  expect(hostTarget()).toBe("bun-linux-x64");
});

test("ignores files of the current directory", async () => {
  using directory = temporaryDirectory();
  mkdirSync(join(directory.path, "here"));
  const here = join(directory.path, "here");
  writeFileSync(
    join(here, "evil.ts"),
    `require("node:fs").writeFileSync(${JSON.stringify(join(here, "ran"))}, "");`,
  );
  writeFileSync(join(here, "bunfig.toml"), 'preload = ["./evil.ts"]\n');
  writeFileSync(join(here, ".env"), "AGENT_JSON=true\n");
  buildAgent();
  const { status, stdout } = await runAgent(["version", "--no-check"], { cwd: here });
  expect(status).toBe(0);
  expect(stdout).toMatch(/^agent \d+\.\d+\.\d+ \(bun-/);
  expect(readdirSync(here).sort()).toEqual([".env", "bunfig.toml", "evil.ts"]);
});
