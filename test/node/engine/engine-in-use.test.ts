// Which engine runs and which version is reported, with real processes: programs of this system stand in for engines.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { chmodSync, copyFileSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../src/base/errors.ts";
import { engineInUse, runsFile, unknownInUse } from "../../../src/node/engine/engine-in-use.ts";
import { examineUnit } from "../../../src/node/engine/systemd-engine.ts";
import { identifyProcess, type ProcessIdentity } from "../../../src/platform/process-identity.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { sha256Hex } from "../../../src/base/sha256.ts";

let directory: ReturnType<typeof temporaryDirectory>;
let path: string;
const children: Bun.Subprocess[] = [];
beforeEach(() => {
  directory = temporaryDirectory();
  path = join(directory.path, "engine");
});
afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  directory[Symbol.dispose]();
});

const standIns = { "1.10.3": "/usr/bin/sleep", "1.11.1": "/usr/bin/tail", "1.6.1": "/usr/bin/cat" } as const;
const sums = new Map(
  Object.entries(standIns).map(([version, file]) => [sha256Hex(readFileSync(file)), version]),
);
/** By content, so that it does not matter by which path a program is read. */
const versionOf = async (file: string) => {
  const version = sums.get(sha256Hex(readFileSync(file)));
  if (version === undefined) throw new AppError("engine_failed", `${file} is no engine`);
  return version;
};

/** As a package manager or an update does it. */
function put(version: keyof typeof standIns): void {
  copyFileSync(standIns[version], `${path}.new`);
  renameSync(`${path}.new`, path);
}

async function start(program = path, args = ["60"]): Promise<ProcessIdentity> {
  const cwd = directory.path;
  const child = Bun.spawn([program, ...args], { cwd, stdin: "ignore", stdout: "ignore", stderr: "ignore" });
  children.push(child);
  // Until exec, the process runs this test's program.
  await Bun.sleep(100);
  const identity = identifyProcess(child.pid);
  if (identity === undefined) throw new Error("The stand-in has not started");
  return identity;
}

test("without a process, the version of the next start is in use", async () => {
  put("1.10.3");
  expect(await engineInUse(undefined, path, versionOf)).toEqual({
    isRunning: false,
    path,
    next: "1.10.3",
    running: undefined,
    version: "1.10.3",
  });
  expect(await engineInUse(undefined, join(directory.path, "none"), versionOf)).toEqual({
    isRunning: false,
    path: undefined,
    next: undefined,
    running: undefined,
    version: undefined,
  });
});

test("a running engine keeps its version when its file is replaced by a newer one, or deleted", async () => {
  put("1.10.3");
  const process = await start();
  expect(await engineInUse(process, path, versionOf)).toEqual({
    isRunning: true,
    path,
    next: "1.10.3",
    running: "1.10.3",
    version: "1.10.3",
  });
  expect(await runsFile(process, path, versionOf)).toBe(true);
  put("1.11.1");
  expect(await engineInUse(process, path, versionOf)).toEqual({
    isRunning: true,
    path,
    next: "1.11.1",
    running: "1.10.3",
    version: "1.10.3",
  });
  expect(await runsFile(process, path, versionOf)).toBe(false);
  rmSync(path);
  expect(await engineInUse(process, path, versionOf)).toEqual({
    isRunning: true,
    path: undefined,
    next: "1.10.3",
    running: "1.10.3",
    version: "1.10.3",
  });
});

test("if the next start is older, its version is reported: both must accept the configuration", async () => {
  put("1.10.3");
  const process = await start();
  put("1.6.1");
  expect(await engineInUse(process, path, versionOf)).toEqual({
    isRunning: true,
    path,
    next: "1.6.1",
    running: "1.10.3",
    version: "1.6.1",
  });
});

test("a damaged engine and a unit's wrapper have no version, and do not prevent a check-in", async () => {
  writeFileSync(path, "damaged");
  expect(await engineInUse(undefined, path, versionOf)).toMatchObject({ version: undefined });
  const process = await start(standIns["1.10.3"]);
  expect(await engineInUse(process, "/usr/bin/env", versionOf, standIns["1.11.1"])).toEqual({
    isRunning: true,
    path: standIns["1.11.1"],
    next: "1.10.3",
    running: "1.10.3",
    version: "1.10.3",
  });
});

test("an engine that is a script counts as its file, until that is replaced", async () => {
  writeFileSync(path, "#!/bin/sh\nkill -STOP $$\n");
  chmodSync(path, 0o755);
  const ofScript = async (file: string) => {
    if (file !== path) throw new AppError("engine_failed", `${file} is no engine`);
    return "1.10.3";
  };
  // The start of a process is known to 10 ms: a file written just before it may count as written after it.
  await Bun.sleep(50);
  const process = await start();
  expect(await engineInUse(process, path, ofScript)).toEqual({
    isRunning: true,
    path,
    next: "1.10.3",
    running: "1.10.3",
    version: "1.10.3",
  });
  await Bun.sleep(50);
  writeFileSync(`${path}.new`, "#!/bin/sh\n");
  renameSync(`${path}.new`, path);
  expect(await engineInUse(process, path, ofScript)).toEqual({
    isRunning: true,
    path,
    next: "1.10.3",
    running: undefined,
    version: undefined,
  });
});

test("a service manager that does not answer is asked again, and then nothing is claimed", async () => {
  const process = await start(standIns["1.10.3"]);
  const asked: string[] = [];
  const answering = (answers: readonly string[]) => ({
    platform: "linux" as const,
    run: async () => {
      const stdout = answers[asked.length] ?? "";
      asked.push(stdout);
      return { status: stdout === "" ? 1 : 0, stdout, stderr: "", timedOut: false };
    },
    sleep: async () => {},
  });
  const answer = `MainPID=${process.pid}\nExecStart={ path=/srv/engine ; argv[]=/srv/engine ; }\n`;
  const here = { slug: "acme", directory: directory.path };
  expect(await examineUnit(here, answering(["", answer]))).toEqual({
    process,
    program: "/srv/engine",
    isKnown: true,
  });
  asked.length = 0;
  const unknown = { program: undefined, isKnown: false };
  expect(await examineUnit(here, answering([]))).toEqual({ process: undefined, ...unknown });
  expect(asked).toEqual(["", "", ""]);
  // A process with the arguments of the unit is seen without systemd. grep takes them for -c -o -n -f ig, and waits.
  const config = join(directory.path, "config.yml");
  writeFileSync(join(directory.path, "ig"), "pattern\n");
  Bun.spawnSync(["mkfifo", config]);
  const seen = await start("/bin/grep", ["-config", config]);
  asked.length = 0;
  expect(await examineUnit(here, answering([]))).toEqual({ process: seen, ...unknown });
  asked.length = 0;
  expect(await examineUnit(here, answering(["MainPID=0\n"]))).toMatchObject({
    process: undefined,
    isKnown: true,
  });
  expect(unknownInUse("/srv/engine")).toMatchObject({ isRunning: true, next: undefined, version: undefined });
});
