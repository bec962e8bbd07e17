// The settings file of `agent serve --config`: what it takes, what wins over it, and how mistakes are named.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "../../src/cli/run.ts";
import { realSystem } from "../../src/base/system.ts";
import { temporaryDirectory } from "../support/temporary.ts";

/** Runs `agent serve --dry-run` with this file: it reads all settings, and shows where the data would be. */
async function serve(
  toml: string | undefined,
  words: readonly string[] = [],
  env: Record<string, string> = {},
) {
  using directory = temporaryDirectory();
  const file = join(directory.path, "control-plane.toml");
  if (toml !== undefined) writeFileSync(file, toml.replaceAll("HERE", directory.path));
  let [out, err] = ["", ""];
  const stdout = { write: (text: string) => void (out += text), isTerminal: false, columns: 80 };
  const stderr = { write: (text: string) => void (err += text), isTerminal: false, columns: 80 };
  const system = { ...realSystem(), env, stdout, stderr };
  const argv = [
    "serve",
    "--config",
    file,
    "--dry-run",
    ...words.map((word) => word.replaceAll("HERE", directory.path)),
  ];
  const status = await run(argv, system);
  return { status, out: out.replaceAll(directory.path, "HERE"), err: err.replaceAll(directory.path, "HERE") };
}

const whole = `
# A comment
listen = "127.0.0.1:9000"
data-dir = "HERE/file"
public-url = "https://control.example.org"
allow-plain-http = false
trusted-proxy = ["127.0.0.1/32", "10.0.0.0/8"]
event-retention = "30d"
`;

test("the keys are the flags of serve", async () => {
  expect(await serve(whole)).toMatchObject({ status: 0, err: "" });
  expect((await serve(whole)).out).toContain("HERE/file/control.db");
});

test("a flag wins over its variable, and both over the file", async () => {
  expect((await serve(whole, ["--data-dir", "HERE/flag"])).out).toContain("HERE/flag/control.db");
  const variable = { AGENT_DATA_DIR: "/nonexistent/variable" };
  expect((await serve(whole, [], variable)).out).toContain("/nonexistent/variable/control.db");
  expect((await serve(whole, ["--data-dir", "HERE/flag"], variable)).out).toContain("HERE/flag/control.db");
});

test.each([
  ["no file", undefined, "There is no settings file"],
  ["no TOML", "listen = ", "is not valid TOML"],
  ["an unknown key", 'listn = "127.0.0.1:1"', "Did you mean listen?"],
  ["itself", 'config = "x"', "config, which is no flag of serve"],
  ["a section", '[listen]\nport = "1"', "listen must be a text"],
  ["a list for one value", 'listen = ["a", "b"]', "takes one value"],
  ["a text for true", 'allow-plain-http = "true"', "true or false, without quotes"],
  ["true for a text", "listen = true", "listen must be a text"],
  ["a wrong value", 'listen = "nonsense"', "--listen must be HOST:PORT"],
  ["too much", `# ${"x".repeat(70_000)}`, "is larger than"],
])("%s is refused, and named", async (_, toml, sentence) => {
  const { status, err } = await serve(toml);
  expect(status).not.toBe(0);
  expect(err).toContain(sentence);
});

test("an empty file changes nothing", async () => {
  expect((await serve("", ["--data-dir", "HERE/flag"])).status).toBe(0);
});
