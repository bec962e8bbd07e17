// A control plane hands out the release that it was installed from: by the lines that it shows, run by a real shell with
// curl, on loopback. What was tampered with is refused.

import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { hostTarget } from "../../build.ts";
import { Installer } from "../../src/api/releases.ts";
import { buildAgent, cleanEnvironment } from "../support/agent.ts";
import { inCi, installMissing, runSync } from "../support/debian.ts";
import { buildVersion, makeRelease, makeReleaseKey, releaseKey, standIn } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const missing = installMissing(["/usr/bin/curl", "/usr/bin/wget", "/usr/bin/openssl"]);
if (missing !== undefined && inCi) throw new Error(missing);

const work = temporaryDirectory();
afterAll(() => work[Symbol.dispose]());
const at = (...names: string[]) => join(work.path, ...names);
const running = new Set<Bun.Subprocess>();
afterEach(async () => {
  for (const each of running) {
    each.kill();
    await each.exited;
  }
  running.clear();
});

const kept = at("publisher/lib/overlay-agent/release");
const agent = at("publisher/bin/agent");
const executable = () => readFileSync(at("agent-0.2.0"));

beforeAll(async () => {
  const executables = { [hostTarget()]: readFileSync(buildVersion(work.path, "0.2.0")) };
  await makeRelease(at("release"), { version: "0.2.0", executables }, releaseKey);
  runSync(["sh", at("release/install"), "--prefix", at("publisher"), "--no-service"]);
}, 240_000);

async function serve(
  program: string,
  flags: readonly string[] = [],
): Promise<{ url: string; offer: Installer }> {
  const data = mkdtempSync(at("data-"));
  const argv = [program, "serve", "--json", "--data-dir", data, "--listen", "127.0.0.1:0", ...flags];
  const child = Bun.spawn(argv, {
    env: cleanEnvironment(),
    stdin: "ignore",
    stderr: "ignore",
    stdout: "pipe",
  });
  running.add(child);
  const { value } = await child.stdout.getReader().read();
  const { url } = v.parse(v.object({ url: v.string() }), JSON.parse(new TextDecoder().decode(value)));
  const answer = await fetch(`${url}/api/install/`, { tls: { rejectUnauthorized: false } });
  return { url, offer: v.parse(Installer, await answer.json()) };
}

/** Runs the line as shown, with another directory. */
function paste(command: string, prefix: string): { status: number; output: string } {
  const line = command.replace(/\| sh\b(?=;|$)/, `| sh -s -- --prefix ${prefix} --no-service`);
  expect(line).not.toBe(command);
  const { exitCode, stdout, stderr } = Bun.spawnSync(["sh", "-c", line], { env: cleanEnvironment() });
  return { status: exitCode, output: stdout.toString() + stderr.toString() };
}

test("the installation keeps what it verified, byte for byte, and its removal leaves nothing", () => {
  expect(readdirSync(kept).sort()).toEqual(
    readdirSync(at("release"))
      .filter((name) => /^manifest|gz$/.test(name))
      .sort(),
  );
  for (const name of readdirSync(kept))
    expect(readFileSync(join(kept, name)).equals(readFileSync(at("release", name))), name).toBe(true);
  runSync(["sh", at("release/install"), "--prefix", at("removed"), "--no-service"]);
  runSync(["sh", at("release/install"), "--prefix", at("removed"), "--uninstall"]);
  expect(existsSync(at("removed/lib/overlay-agent"))).toBe(false);
});

test("the line installs the same bytes, with the address of the control plane, and updates come from there", async () => {
  const { url, offer } = await serve(agent);
  expect(offer).toEqual({
    command: `curl -fsSL ${url}/install | sh`,
    version: "0.2.0",
    targets: [hostTarget()],
    reason: null,
  });
  expect(paste(offer.command ?? "", at("node"))).toMatchObject({ status: 0 });
  expect(readFileSync(at("node/bin/agent")).equals(executable())).toBe(true);
  expect(readFileSync(at("node/lib/overlay-agent/releases.url"), "utf8")).toBe(`${url}/releases/\n`);
  // Only a control plane needs the archive.
  expect(readdirSync(at("node/lib/overlay-agent"))).toEqual(["releases.url"]);
  expect(paste(offer.command ?? "", at("node"))).toMatchObject({
    status: 0,
    output: expect.stringContaining("already has version 0.2.0"),
  });
  const state = ["--state-db-path", at("node/state.db")];
  expect(runSync([at("node/bin/agent"), "self-update", "--check", ...state])).toContain(
    "is the latest release",
  );
  // Also without curl.
  const script = runSync(["wget", "-qO-", `${url}/install`]);
  expect(script).toBe(runSync(["curl", "-fsSL", `${url}/install`]));
});

test("a node updates from a control plane that has the .tar.gz alone, and keeps no release", async () => {
  const { url } = await serve(agent);
  mkdirSync(at("former/bin"), { recursive: true });
  runSync(["cp", buildVersion(work.path, "0.1.0"), at("former/bin/agent")]);
  const state = ["--state-db-path", at("former/state.db")];
  runSync([at("former/bin/agent"), "self-update", "--release-url", `${url}/releases/`, ...state]);
  expect(readFileSync(at("former/bin/agent")).equals(executable())).toBe(true);
  expect(existsSync(at("former/lib"))).toBe(false);
}, 240_000);

test("a machine with a newer version stays as it is", async () => {
  const { offer } = await serve(agent);
  const executables = { [hostTarget()]: Buffer.from('#!/bin/sh\necho "agent 0.3.0 (stand-in)"\n') };
  await makeRelease(at("newer"), { version: "0.3.0", executables }, releaseKey);
  runSync(["sh", at("newer/install"), "--prefix", at("ahead"), "--no-service"]);
  const before = readFileSync(at("ahead/lib/overlay-agent/releases.url"), "utf8");
  expect(paste(offer.command ?? "", at("ahead"))).toMatchObject({
    status: 0,
    output: expect.stringContaining("its version 0.3.0 is newer"),
  });
  expect(readFileSync(at("ahead/lib/overlay-agent/releases.url"), "utf8")).toBe(before);
});

test("with a certificate of its own CA, the line runs only the script that it names", async () => {
  const { offer, url } = await serve(agent, ["--tls", "auto"]);
  const command = offer.command ?? "";
  expect(command).toContain(`curl -fsSk ${url}/install`);
  // The script pins the CA.
  expect(paste(command, at("pinned"))).toMatchObject({ status: 0 });
  expect(readFileSync(at("pinned/bin/agent")).equals(executable())).toBe(true);
  const other = command.replace(
    /\^([0-9a-f]{64})/,
    (_, sum: string) => `^${sum.split("").toReversed().join("")}`,
  );
  expect(paste(other, at("never"))).toEqual({
    status: 1,
    output: "Not the script that this line names: nothing was run. Copy the line anew.\n",
  });
  expect(existsSync(at("never"))).toBe(false);
  // Another server at this address, with a certificate of another CA.
  const script = runSync(["curl", "-fsSk", `${url}/install`]);
  const thief = await serve(agent, ["--tls", "auto"]);
  writeFileSync(at("moved"), script.replaceAll(url, thief.url));
  const { exitCode, stderr } = Bun.spawnSync(["sh", at("moved"), "--prefix", at("never"), "--no-service"]);
  expect([exitCode, stderr.toString()]).toEqual([1, expect.stringContaining("certificate")]);
  expect(existsSync(at("never/bin"))).toBe(false);
});

test("a tampered executable, manifest or signature is refused by the new machine, and by the control plane", async () => {
  const changed = (name: string, text: (content: Buffer) => Buffer | string) => {
    const path = join(kept, name);
    const content = readFileSync(path);
    writeFileSync(path, text(Buffer.from(content)));
    return { [Symbol.dispose]: () => writeFileSync(path, content) };
  };
  const { offer, url } = await serve(agent);
  const command = offer.command ?? "";
  const flipped = (content: Buffer) => {
    content[1000] = (content[1000] ?? 0) ^ 1;
    return content;
  };
  const archive = readdirSync(kept).find((name) => name.endsWith(".gz")) ?? "";
  {
    using _ = changed(archive, flipped);
    expect(paste(command, at("never"))).toMatchObject({
      status: 1,
      output: expect.stringContaining(`the SHA-256 of ${archive} does not match the manifest`),
    });
  }
  const script = runSync(["curl", "-fsSL", `${url}/install`]);
  writeFileSync(at("script"), script);
  const changes: [string, (content: Buffer) => Buffer | string, string][] = [
    [
      "manifest.json",
      (content) => content.toString().replace("0.2.0", "0.2.1"),
      "The signature does not match",
    ],
    [
      "manifest.json.minisig",
      (content) => content.toString().replace("sequence 1", "sequence 2"),
      "trusted comment",
    ],
    ["manifest.json.minisig", () => "", "The signature file is damaged"],
  ];
  for (const [name, change, why] of changes) {
    using _ = changed(name, change);
    const answer = await fetch(`${url}/install`);
    const offered = v.parse(Installer, await (await fetch(`${url}/api/install/`)).json());
    expect([answer.ok, offered.command, offered.reason]).toEqual([false, null, expect.stringContaining(why)]);
    // The trusted comment is no part of what the script needs.
    if (why === "trusted comment") continue;
    const { exitCode } = Bun.spawnSync(["sh", at("script"), "--prefix", at("never"), "--no-service"]);
    expect([name, exitCode]).toEqual([name, 1]);
  }
  expect(existsSync(at("never/bin"))).toBe(false);
  // Of another publisher.
  const executables = { [hostTarget()]: standIn("0.2.0", "exit 0") };
  await makeRelease(at("foreign"), { version: "0.2.0", executables }, makeReleaseKey());
  const foreign = await serve(agent, ["--releases", at("foreign")]);
  expect(foreign.offer).toMatchObject({ command: null, reason: expect.stringContaining("unknown key") });
});

test("long after: an expired release installs a new machine, and no installed one takes it for an update", async () => {
  const executables = { [hostTarget()]: executable() };
  const expiresAt = "2026-01-02T00:00:00Z";
  await makeRelease(at("old"), { version: "0.2.0", executables, expiresAt }, releaseKey);
  const { offer } = await serve(agent, ["--releases", at("old")]);
  expect(paste(offer.command ?? "", at("late"))).toMatchObject({ status: 0 });
  const state = ["--state-db-path", at("late/state.db")];
  const { exitCode, stderr } = Bun.spawnSync([at("late/bin/agent"), "self-update", ...state]);
  expect([exitCode, stderr.toString()]).toEqual([1, expect.stringContaining("The release expired")]);
});

test("a system that the control plane does not have is named with what adds it", async () => {
  const { offer } = await serve(agent);
  const bin = at("other-system");
  mkdirSync(bin);
  writeFileSync(join(bin, "uname"), '#!/bin/sh\n[ "$1" = -m ] && echo aarch64 || echo Linux\n', {
    mode: 0o755,
  });
  const manifest = readFileSync(join(kept, "manifest.json"));
  const line = (offer.command ?? "").replace("| sh", `| PATH=${bin}:$PATH sh -s -- --prefix ${at("never")}`);
  const { exitCode, stderr } = Bun.spawnSync(["sh", "-c", line], { env: cleanEnvironment() });
  expect([exitCode, stderr.toString()]).toEqual([
    1,
    expect.stringContaining("has no agent for bun-linux-arm64"),
  ]);
  expect(readFileSync(join(kept, "manifest.json")).equals(manifest)).toBe(true);
});

test("an unsigned build hands out nothing, and says how to publish one", async () => {
  const prefix = at("unsigned");
  mkdirSync(join(prefix, "bin"), { recursive: true });
  runSync(["cp", buildAgent(), join(prefix, "bin/agent")]);
  // Also where a signed program was before.
  runSync(["cp", "-r", at("publisher/lib"), prefix]);
  const { offer, url } = await serve(join(prefix, "bin/agent"));
  expect(offer).toMatchObject({ command: null, reason: expect.stringContaining("bun build.ts --release") });
  expect((await fetch(`${url}/install`)).status).toBe(404);
});

test("an update of the control plane's program renews what it hands out", async () => {
  const prefix = at("updated");
  runSync(["sh", at("release/install"), "--prefix", prefix, "--no-service"]);
  const executables = { [hostTarget()]: standIn("0.3.0", "exit 0") };
  await makeRelease(at("next"), { version: "0.3.0", sequence: 9, executables }, releaseKey);
  const update = ["self-update", "--release-url", at("next"), "--state-db-path", join(prefix, "state.db")];
  runSync([join(prefix, "bin/agent"), ...update]);
  const directory = join(prefix, "lib/overlay-agent/release");
  expect(readdirSync(directory).sort()).toEqual(
    readdirSync(at("next"))
      .filter((name) => /^manifest|gz$/.test(name))
      .sort(),
  );
  for (const name of readdirSync(directory))
    expect(readFileSync(join(directory, name)).equals(readFileSync(at("next", name))), name).toBe(true);
});
