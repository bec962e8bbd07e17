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

test("a build that would publish something useless is refused, with the flag", () => {
  const made = (...flags: string[]) => {
    const argv = [process.execPath, join(import.meta.dir, "../../build.ts"), ...flags];
    const { exitCode, stdout, stderr } = Bun.spawnSync(argv, { stdin: "ignore" });
    return { status: exitCode, out: stdout.toString(), err: stderr.toString() };
  };
  for (const [flag, value] of [
    ["--sequence", "abc"],
    ["--sequence", "0"],
    ["--version", ""],
    ["--version", "1.2"],
    ["--expires-in", "0s"],
    ["--issued-at", "yesterday"],
    ["--release-url", "ftp://releases.example/"],
    ["--release-url", "http://releases.example/"],
  ] as const) {
    const { status, err } = made("--release", "--secret-key", "/nonexistent", `${flag}=${value}`);
    expect({ flag, value, status, err }).toMatchObject({ status: 1, err: expect.stringContaining(flag) });
  }
  expect(made("--help")).toMatchObject({ status: 0, out: expect.stringContaining("--release-url URL") });
});
