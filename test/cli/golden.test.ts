// Golden files of the help texts, of the JSON documents of the node's commands, and of the exit status of each kind of failure.
// See golden-admin.test.ts and golden-daemon.test.ts for the other commands.
// To accept a change: GOLDEN=write bun test test/cli/golden.test.ts

import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { brand } from "../../src/brand.ts";
import { allCommands } from "../../src/cli/commands.ts";
import { run } from "../../src/cli/run.ts";
import { AppError, errorTable } from "../../src/base/errors.ts";
import { realSystem, type System } from "../../src/base/system.ts";
import { documentOf, expectGolden } from "../support/golden.ts";
import { makeNodeWorld, registerWords, type NodeWorld, type Ran } from "../support/node.ts";

async function help(words: readonly string[]): Promise<string> {
  const out: string[] = [];
  const stream = (lines: string[]) => ({
    write: (text: string) => void lines.push(text),
    isTerminal: false,
    columns: 80,
  });
  // The defaults of Linux, on every system.
  const system: System = {
    ...realSystem(),
    platform: "linux",
    env: {},
    stdout: stream(out),
    stderr: stream([]),
  };
  expect(await run(["help", ...words], system)).toBe(0);
  return out.join("");
}

test("help texts of the program, each group and each command", async () => {
  const commands = await allCommands();
  const groups = new Set(Object.keys(commands).flatMap((name) => prefixes(name)));
  // Shown once: commands of one section have the same global flags.
  const global = /\nGLOBAL OPTIONS\n[^]*$/;
  const whole = new Set(["", "version", "status", "register", "overlay install", "serve", "flags"]);
  const texts: string[] = [];
  for (const name of ["", "flags", ...[...groups, ...Object.keys(commands)].sort()]) {
    const text = await help(name.split(" ").filter(Boolean));
    const shown = whole.has(name) ? text : text.replace(global, "");
    texts.push(`$ agent help ${name}`.trimEnd() + `\n\n${shown.trimEnd()}\n`);
  }
  expectGolden("help.txt", texts.join("\n\n"));
});

/** "admin node" of "admin node list". */
function prefixes(name: string): string[] {
  const words = name.split(" ");
  return words.slice(0, -1).map((_, at) => words.slice(0, at + 1).join(" "));
}

let world: NodeWorld;
beforeAll(async () => {
  world = await makeNodeWorld();
});
afterAll(() => world[Symbol.asyncDispose]());

/** An engine that prints its version and accepts every configuration. */
function writeEngine(version: string, path = world.settings.overlayBinary): string {
  writeFileSync(path, `#!/bin/sh\n[ "$1" = -version ] && echo Version: ${version}\nexit 0\n`);
  chmodSync(path, 0o755);
  return path;
}

const Doctor = v.object({
  ok: v.boolean(),
  checks: v.array(v.object({ id: v.string(), org_slug: v.optional(v.string()) })),
});

const documents: string[] = [];
async function note(words: readonly string[], options: { stdin?: string } = {}): Promise<Ran> {
  const ran = await world.agent([...words, "--json"], options);
  const place = join(world.root, "..");
  documents.push(documentOf(words, { ...ran, place, fromFile: options.stdin !== undefined }));
  return ran;
}

test("JSON documents of the node's commands, and of their dry runs", async () => {
  const token = [...registerWords, "--registration-token-file", "-", "--no-start"];
  await note(["overlay", "check"]);
  const older = writeEngine("1.10.3", join(world.root, "../older"));
  const newer = writeEngine("1.11.0", join(world.root, "../newer"));
  await note(["overlay", "install", "--file", older, "--dry-run"]);
  await note(["overlay", "install", "--file", older]);
  await note(["overlay", "update", "--file", newer]);
  await note(["overlay", "update", "--file", newer]);
  await note(["overlay", "update", "--rollback", "--dry-run"]);
  await note(["overlay", "update", "--rollback"]);
  await note(["overlay", "check"]);
  await note([...token, "--dry-run"], { stdin: "x".repeat(43) });
  await note(token, { stdin: await world.token() });
  await note(token, { stdin: await world.token() });
  await note(["checkin"]);
  await note(["checkin", "--dry-run"]);
  await note(["sync-config"]);
  // A server that ran in this process has narrowed its umask.
  writeFileSync(join(world.root, "acme/overrides.yml"), "listen:\n  port: 47771\n");
  chmodSync(join(world.root, "acme/overrides.yml"), 0o644);
  await note(["sync-config", "--dry-run"]);
  await note(["sync-config"]);
  await note(["check-port"]);
  await note(["check-port", "--dry-run"]);
  await note(["check-auth"]);
  await note(["check-auth", "--dry-run"]);
  await note(["logs"]);
  const { json } = await world.agent(["doctor", "--json"]);
  // The results depend on the machine; the list of checks does not.
  const { checks } = v.parse(Doctor, json);
  documents.push(
    `$ agent doctor --json\n${checks.map(({ id, org_slug }) => `${org_slug ?? "-"} ${id}`).join("\n")}\n`,
  );
  await note(["doctor", "--bundle", "/tmp/report.tar.gz", "--dry-run"]);
  await note(["unregister", "--org-slug", "acme", "--dry-run"]);
  await world.api("DELETE", "/api/org/acme/nodes/1/");
  await note(["check-auth"]);
  await note(["unregister", "--org-slug", "acme"]);
  await note(["version", "--no-check"]);
  expectGolden("documents.txt", documents.join("\n"));
}, 120_000);

test("exit statuses: of each error code, and one command line for each", async () => {
  const codes = Object.keys(errorTable) as (keyof typeof errorTable)[];
  const table = codes.map((code) => `${code} ${new AppError(code, "").exitStatus}`);
  await using world = await makeNodeWorld();
  // Retries and the wait for the daemon, fifty times faster.
  world.system.sleep = (ms) => Bun.sleep(ms / 50);
  const lines: string[] = [];
  const status = async (words: readonly string[], stdin = "") => {
    const { status: met } = await world.agent(words, { stdin });
    lines.push(`${met} agent ${words.join(" ")}`);
  };
  const { fetch } = world.system;
  const away = () => Promise.reject(new Error("away"));
  const overrides = join(world.root, "acme/overrides.yml");
  const desktop = [...registerWords.slice(0, -1), "desktop", "--registration-token-file", "-", "--no-start"];
  await status(["version", "--no-check"]);
  await status(["overlay", "install", "--file", "/nowhere/engine"]);
  world.system.fetch = async (url) =>
    url === brand.engineLatestUrl
      ? new Response(null, { status: 302, headers: { location: "https://example.com/v99.0.0" } })
      : new Response(null, { status: 404 });
  await status(["overlay", "update", "--check"]);
  world.system.fetch = fetch;
  await status(["check-port", "0"]);
  await status(["versoin"]);
  await status(["checkin"]);
  await status(desktop, "A".repeat(43));
  world.system.fetch = away;
  await status(desktop, "A".repeat(43));
  world.system.fetch = fetch;
  await status(desktop, await world.token());
  await status(["start", "acme"]);
  await status(["status"]);
  await status(["start", "beta"]);
  await status(["sync-config"]);
  writeFileSync(overrides, "pki: {}\n");
  await status(["sync-config"]);
  rmSync(overrides);
  world.system.fetch = away;
  await status(["check-auth"]);
  await status(["checkin"]);
  world.system.fetch = fetch;
  await world.api("DELETE", "/api/org/acme/nodes/1/");
  await status(["checkin"]);
  await status(["check-auth"]);
  await status(["check-auth"]);
  expectGolden("exit-statuses.txt", `${table.join("\n")}\n\n${lines.join("\n")}\n`);
});
