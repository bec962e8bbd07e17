// `agent self-update` without services: what it accepts and refuses, and that a kill at any step leaves a working
// executable. Another test updates services in booted machines.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  cpSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { hostTarget } from "../../build.ts";
import { withLock } from "../../src/node/files/lock.ts";
import { realSystem } from "../../src/base/system.ts";
import { buildAgent, cleanEnvironment, startControlPlane } from "../support/agent.ts";
import { inCi, installMissing } from "../support/debian.ts";
import {
  type TestRelease,
  buildVersion,
  makeRelease,
  makeReleaseKey,
  releaseKey,
  standIn,
} from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const work = temporaryDirectory();
afterAll(() => work[Symbol.dispose]());
const at = (...names: string[]) => join(work.path, ...names);
const key = releaseKey;
let executable: string;

type Installed = { bin: string; agent: string; stateDb: string };

/** A new installation of 0.1.0. */
function install(): Installed {
  const root = mkdtempSync(at("installed-"));
  const bin = join(root, "bin");
  mkdirSync(bin);
  linkSync(executable, join(bin, "agent"));
  return { bin, agent: join(bin, "agent"), stateDb: join(root, "state/state.db") };
}

async function run(argv: string[]): Promise<{ status: number; stdout: string }> {
  const child = Bun.spawn(argv, { env: cleanEnvironment(), stdin: "ignore", stderr: "pipe" });
  const [stdout, status] = await Promise.all([new Response(child.stdout).text(), child.exited]);
  return { status, stdout };
}

const updateCommand = ({ agent, stateDb }: Installed, url: string, flags: string[] = []) => [
  agent,
  "self-update",
  "--json",
  "--state-db-path",
  stateDb,
  "--release-url",
  url,
  ...flags,
];
const update = (installed: Installed, url: string, flags?: string[]) =>
  run(updateCommand(installed, url, flags));

async function versionOf({ agent }: Installed): Promise<string> {
  const { stdout } = await run([agent, "version", "--no-check", "--json"]);
  return v.parse(v.pipe(v.string(), v.parseJson(), v.object({ version: v.string() })), stdout).version;
}

const release = (
  name: string,
  content: Omit<TestRelease, "executables">,
  program = standIn(content.version, "exit 0"),
  signer = key,
) => makeRelease(at(name), { ...content, executables: { [hostTarget()]: program } }, signer);

beforeAll(async () => {
  buildAgent();
  executable = buildVersion(work.path, "0.1.0");
  await release("new", { version: "0.2.0", sequence: 5 });
}, 240_000);

describe("installs", () => {
  test("a new release, and keeps the former executable", async () => {
    const installed = install();
    const { status, stdout } = await update(installed, at("new"));
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      from: "0.1.0",
      to: "0.2.0",
      source: "release",
      changed: true,
    });
    expect(await versionOf(installed)).toBe("0.2.0");
    expect(readdirSync(installed.bin).sort()).toEqual(["agent", "agent.old"]);
  });

  test("what a control plane hands out, if the update before was killed between two of its files", async () => {
    const installed = install();
    const kept = join(installed.bin, "../lib/overlay-agent/release");
    await release("same", { version: "0.1.0", sequence: 4 });
    mkdirSync(kept, { recursive: true });
    cpSync(at("new", "manifest.json"), join(kept, "manifest.json"));
    cpSync(at("same", "manifest.json.minisig"), join(kept, "manifest.json.minisig"));
    const planned = await update(installed, at("same"), ["--dry-run"]);
    expect(planned.stdout).toContain(join(kept, "manifest.json"));
    expect(JSON.parse((await update(installed, at("same"))).stdout)).toMatchObject({ changed: false });
    const names = readdirSync(kept).sort();
    expect(names).toEqual([expect.stringContaining(".tar.gz"), "manifest.json", "manifest.json.minisig"]);
    for (const name of names)
      expect(readFileSync(join(kept, name)).equals(readFileSync(at("same", name)))).toBe(true);
    expect((await update(installed, at("same"), ["--dry-run"])).stdout).not.toContain(kept);
  });

  test("a release from a control plane, after a check", async () => {
    await using plane = await startControlPlane(at("plane"), ["--releases", at("new")]);
    const mirror = `${plane.url}/releases/`;
    const installed = install();
    expect((await update(installed, mirror, ["--check"])).status).toBe(10);
    expect((await run([installed.agent, "version", "--release-url", mirror])).stdout).toContain(
      "0.2.0 is available",
    );
    expect((await update(installed, mirror)).status).toBe(0);
    expect(await versionOf(installed)).toBe("0.2.0");
    for (const name of ["..%2fplane%2fsecret.key", ".hidden", "nothing", ""]) {
      expect((await fetch(mirror + name)).status).toBe(404);
    }
  });

  test("an older release only with --allow-downgrade", async () => {
    await release("older", { version: "0.0.9", sequence: 1 });
    const installed = install();
    expect(await update(installed, at("older"))).toMatchObject({
      status: 1,
      stdout: expect.stringContaining("older than this one"),
    });
    expect((await update(installed, at("older"), ["--allow-downgrade"])).status).toBe(0);
    expect(await versionOf(installed)).toBe("0.0.9");
  });
});

describe("refuses", () => {
  const program = standIn("0.4.0", "exit 0");
  const ahead = { version: "0.4.0", sequence: 9 };
  /** Copies the release and changes one file after it was signed. */
  const altered = (name: string, file: string, change: (content: Buffer) => Buffer) => {
    cpSync(at("ahead"), at(name), { recursive: true });
    const found = readdirSync(at(name)).find((each) => each.includes(file)) ?? file;
    writeFileSync(at(name, found), change(readFileSync(at(name, found))));
  };
  const reasons: Record<string, string> = {
    replayed: "number is 4, and this machine has seen 5",
    expired: "expired on 2026-01-02",
    foreign: "unknown key",
    misnamed: "reports version 0.4.0, not 0.5.0",
    broken: "reports version none",
    platform: `no executable for ${hostTarget()}`,
    nowhere: "Cannot read",
    "cut-off": "is incomplete",
    longer: "is larger than",
    changed: "not the signed",
    forged: "signature",
    endless: "is larger than",
    unsigned: "signature",
  };

  beforeAll(async () => {
    await release("ahead", ahead, program);
    await release("replayed", { version: "0.4.0", sequence: 4 }, program);
    await release("expired", { ...ahead, expiresAt: "2026-01-02T00:00:00Z" }, program);
    await release("foreign", ahead, program, makeReleaseKey());
    await release("misnamed", { ...ahead, version: "0.5.0" }, program);
    await release("broken", ahead, Buffer.from("no program"));
    await makeRelease(at("platform"), { ...ahead, executables: {} }, key);
    altered("cut-off", ".tar.zst", (content) => content.subarray(0, -1));
    altered("longer", ".tar.zst", (content) => Buffer.concat([content, content]));
    altered("changed", ".tar.zst", (content) => Buffer.from(content.with(40, (content[40] ?? 0) ^ 1)));
    altered("forged", "manifest.json", (content) =>
      Buffer.from(content.toString().replace("0.4.0", "0.4.1")),
    );
    altered("endless", "manifest.json", () => Buffer.alloc(100_000, " "));
    altered("unsigned", "manifest.json.minisig", () => Buffer.from("untrusted comment: none\n\n"));
  });

  for (const [name, reason] of Object.entries(reasons)) {
    test(`a release that is ${name}, with the reason`, async () => {
      const installed = install();
      mkdirSync(join(installed.stateDb, ".."));
      writeFileSync(join(installed.stateDb, "../release.json"), '{"sequence":5}');
      const { status, stdout } = await update(installed, at(name));
      expect({ status, stdout }).toEqual({ status: 1, stdout: expect.stringContaining(reason) });
      expect(await versionOf(installed)).toBe("0.1.0");
      expect(readdirSync(installed.bin)).toEqual(["agent"]);
    });
  }

  for (const name of ["forged", "foreign", "expired", "unsigned"]) {
    test(`engines of a release that is ${name}`, async () => {
      const { agent, bin, stateDb } = install();
      const places = ["--overlay-binary", join(bin, "overlay"), "--state-db-path", stateDb];
      const source = ["--source", "release", "--release-url", at(name), "--json"];
      const { status, stdout } = await run([agent, "overlay", "install", ...source, ...places]);
      expect({ status, stdout }).toEqual({ status: 1, stdout: expect.stringContaining(reasons[name] ?? "") });
      expect(readdirSync(bin)).toEqual(["agent"]);
    });
  }
});

describe("rollback", () => {
  const rollBack = async (installed: Installed, flags: string[] = []) => {
    const places = ["--json", "--state-db-path", installed.stateDb, ...flags];
    return run([installed.agent, "self-update", "--rollback", ...places]);
  };

  test("--dry-run plans the rollback; --guard has no --dry-run", async () => {
    const installed = install();
    expect(await rollBack(installed, ["--dry-run"])).toMatchObject({ status: 1 });
    await update(installed, at("new"));
    // The stand-in has no --dry-run, so swap it with the real agent.
    const old = join(installed.bin, "agent.old");
    const spare = join(installed.bin, "spare");
    renameSync(old, spare);
    renameSync(installed.agent, old);
    renameSync(spare, installed.agent);
    const { status, stdout } = await rollBack(installed, ["--dry-run"]);
    expect({ status, plan: JSON.parse(stdout) }).toMatchObject({
      status: 0,
      plan: {
        plan: expect.arrayContaining([
          { step: "file", path: old, mode: "0755", change: "changed" },
          { step: "file", path: installed.agent, mode: "0755", change: "changed" },
        ]),
      },
    });
    expect(stdout).not.toContain("manifest");
    expect(await versionOf(installed)).toBe("0.1.0");
    expect((await run([installed.agent, "self-update", "--guard", "--dry-run"])).status).toBe(2);
  });

  test("fails as busy during an update", async () => {
    const installed = install();
    const state = join(installed.stateDb, "..");
    mkdirSync(state);
    linkSync(installed.agent, join(installed.bin, "agent.old"));
    const lock = join(installed.bin, ".agent.lock");
    const refused = async () =>
      expect(await rollBack(installed)).toMatchObject({
        status: 1,
        stdout: expect.stringContaining(
          '"code":"busy","message":"Another command is updating the agent on this machine: agent self-update',
        ),
      });
    const other = { path: lock, doing: "updating the agent on this machine" };
    await withLock(state, "agent self-update", realSystem(), refused, other);
    expect(await rollBack(installed)).toMatchObject({ status: 0 });
  }, 240_000);
});

let killed = 0;
const missing = installMissing(["/usr/bin/strace"]);
if (missing !== undefined && inCi) throw new Error(missing);

/** strace kills the process before the N-th call of each kind. */
const steps = ["mkdir", "fsync", "rename", "link", "unlink", "symlink", "write", "pwrite64"];
const atMost = 12;

describe.skipIf(missing !== undefined)("killed", () => {
  for (const call of steps) {
    test(`before any ${call}: the executable works, and the next run succeeds`, async () => {
      for (let count = 1, ended = false; !ended && count <= atMost; count++) {
        const installed = install();
        const inject = ["-e", `trace=${call}`, "-e", `inject=${call}:signal=SIGKILL:when=${count}`];
        const strace = ["/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", ...inject];
        const { status } = await run([...strace, ...updateCommand(installed, at("new"))]);
        ended = status === 0;
        const left = await versionOf(installed);
        expect(["0.1.0", "0.2.0"]).toContain(left);
        if (left === "0.1.0") expect(await update(installed, at("new"))).toMatchObject({ status: 0 });
        expect(await versionOf(installed)).toBe("0.2.0");
        // The kernel has released the lock of the killed process; its file stays.
        const there = readdirSync(installed.bin).filter((name) => name !== ".agent.lock");
        expect(there.sort()).toEqual(["agent", "agent.old"]);
        rmSync(join(installed.bin, ".."), { recursive: true });
        killed += ended ? 0 : 1;
      }
    }, 240_000);
  }

  test("the tests above killed at many steps", () => expect(killed).toBeGreaterThanOrEqual(20));
});
