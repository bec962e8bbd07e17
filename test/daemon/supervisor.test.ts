// The supervisor with real processes: a shell script replaces the engine and writes its log. Time runs twenty times as
// fast.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { spawnEngine, watchEnd } from "../../src/daemon/engine-processes.ts";
import { Supervisor, type RunningProcess, type SupervisorDeps } from "../../src/daemon/supervisor.ts";
import { AppError } from "../../src/base/errors.ts";
import { findEngineProcess } from "../../src/node/engine/engine-process.ts";
import { ageOf, isAlive, type ProcessIdentity } from "../../src/platform/process-identity.ts";
import { realSystem } from "../../src/base/system.ts";
import { until } from "../support/until.ts";

const speed = 20;
const real = realSystem();
const system = { ...real, sleep: (ms: number, signal?: AbortSignal) => real.sleep(ms / speed, signal) };
const quiet = { debug() {}, info() {}, warn() {}, error() {} };

let directory = "";
let recorded: RunningProcess | undefined;
let everyProcess: ProcessIdentity[] = [];
let supervisors: Supervisor[] = [];
let starts = 0;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "supervisor-"));
  [recorded, everyProcess, supervisors, starts] = [undefined, [], [], 0];
});

afterEach(async () => {
  for (const supervisor of supervisors) supervisor.release();
  for (const process of everyProcess) if (isAlive(process)) globalThis.process.kill(process.pid, "SIGKILL");
  rmSync(directory, { recursive: true, force: true });
});

type FakeEngine = { beforeReady?: string; onHup?: string; onTerm?: string };

const say = (msg: string, level = "info") => `echo '{"level":"${level}","msg":"${msg}"}'`;
const applied = `${say("Caught HUP, reloading config")}; ${say("Client cert refreshed from disk")}`;

/** Writes the fake engine. A test can replace it while it is supervised. */
function engine({ beforeReady = "", onHup = applied, onTerm = "exit 0" }: FakeEngine = {}): void {
  const path = join(directory, "engine");
  const script = `#!/bin/bash
trap 'exit 129' HUP
${beforeReady}
asked=0
taken=0
trap 'asked=$((asked + 1))' HUP
trap '${onTerm}' TERM
${say("Nebula interface is active")}
# One reload after the other, as the engine does it: never one inside another.
while :; do
  if [ $taken -lt $asked ]; then taken=$((taken + 1)); ${onHup}; else sleep 0.01; fi
done
`;
  writeFileSync(path, script);
  chmodSync(path, 0o755);
}

function supervisor(wanted: "up" | "down" = "down", change: Partial<SupervisorDeps> = {}): Supervisor {
  const made = new Supervisor(wanted, {
    slug: "acme",
    logPath: join(directory, "logs", "acme.log"),
    controlSocket: undefined,
    system: { ...system, monotonic: () => performance.now() * speed },
    log: quiet,
    isSilent: () => false,
    writesLog: () => true,
    prepare: async () => ({ argv: [join(directory, "engine")], silent: false, device: undefined }),
    hasInterface: () => false,
    find: () => undefined,
    ageOf,
    spawn(argv, logPath) {
      starts++;
      const spawned = spawnEngine(argv, logPath);
      if (spawned.process !== undefined) everyProcess.push(spawned.process);
      return spawned;
    },
    watchEnd: (process, signal) => watchEnd(process, system, signal),
    record: (process) => (recorded = process),
    changed() {},
    ...change,
  });
  supervisors.push(made);
  return made;
}

const living = () => everyProcess.filter(isAlive);
const isUp = (supervised: Supervisor) => {
  const { phase } = supervised.state;
  return phase.is === "running" && phase.ready;
};

async function failureOf(work: Promise<unknown>): Promise<AppError> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof AppError) return error;
  throw new Error(`Not an AppError: ${String(error)}`);
}

test("start() resolves when the engine is ready, stop() when it is gone", async () => {
  engine({ beforeReady: "sleep 0.05" });
  const supervised = supervisor();
  await supervised.start();
  expect(supervised.state.phase).toMatchObject({ is: "running", ready: true });
  expect(living().map(({ pid }) => pid)).toEqual([supervised.process?.pid ?? 0]);
  expect(recorded?.pid).toBe(supervised.process?.pid ?? 0);
  await supervised.start();
  expect(everyProcess).toHaveLength(1);
  await supervised.stop();
  expect(living()).toEqual([]);
  expect(recorded).toBeUndefined();
  expect(supervised.message).toBeUndefined();
});

test("start() rejects with the engine's error, and further tries follow until it runs", async () => {
  engine({ beforeReady: `${say("Failed to get a tun/tap device", "error")}; exit 1` });
  const supervised = supervisor();
  const failure = await failureOf(supervised.start());
  expect(failure.message).toBe("The overlay engine ended (exit status 1): Failed to get a tun/tap device");
  await until(() => starts >= 2);
  engine();
  await until(() => living().length === 1 && supervised.state.phase.is === "running");
  await until(() => supervised.message === undefined);
});

test("start() rejects with the reason of a failed check, and starts nothing", async () => {
  const supervised = supervisor("down", {
    prepare: () => Promise.reject(new AppError("collision", "acme cannot run beside beta")),
  });
  expect((await failureOf(supervised.start())).message).toContain("beside beta");
  expect(supervised.state.phase.is).toBe("waiting");
  expect(everyProcess).toEqual([]);
  await supervised.stop();
  expect(supervised.state.phase.is).toBe("stopped");
});

test("a killed engine is restarted, and there is never a second one", async () => {
  engine();
  // The wait between two starts is too short to observe reliably by polling.
  const seen: string[] = [];
  const supervised = supervisor("down", {
    changed: () =>
      seen.push(`${supervised.state.phase.is}, ${living().length} alive: ${supervised.message ?? ""}`),
  });
  await supervised.start();
  for (let round = 1; round <= 3; round++) {
    const before = supervised.process?.pid ?? 0;
    seen.length = 0;
    process.kill(before, "SIGKILL");
    await until(() => seen.some((each) => each.startsWith("waiting")) && isUp(supervised));
    expect(seen).toEqual([
      "waiting, 0 alive: The overlay engine ended (SIGKILL)",
      "starting, 0 alive: The overlay engine ended (SIGKILL)",
      "running, 1 alive: The overlay engine ended (SIGKILL)",
      "running, 1 alive: ",
    ]);
    expect(supervised.process?.pid).not.toBe(before);
    expect(living()).toHaveLength(1);
  }
});

test("a reload waits until the engine is ready, and resolves when the log shows it", async () => {
  engine({ beforeReady: "sleep 0.1" });
  const supervised = supervisor();
  const started = supervised.start();
  await until(() => supervised.state.phase.is === "running");
  await supervised.control.reload();
  await started;
  expect(everyProcess).toHaveLength(1);
  expect(readFileSync(join(directory, "logs", "acme.log"), "utf8").match(/Caught HUP/g)).toHaveLength(2);
  await Promise.all([supervised.control.reload(), supervised.control.reload()]);
  expect(living()).toHaveLength(1);
});

test("reload() rejects if the engine refuses it or dies", async () => {
  engine({ onHup: `${say("Caught HUP, reloading config")}; ${say("Could not load client cert", "error")}` });
  const supervised = supervisor();
  await supervised.start();
  expect((await failureOf(supervised.control.reload())).message).toContain("Could not load client cert");
  engine({ onHup: "exit 2" });
  await supervised.restart();
  expect((await failureOf(supervised.control.reload())).message).toContain("ended");
});

test("reload() between two tries starts the next one at once", async () => {
  engine({ beforeReady: "sleep 0.02; exit 1" });
  const supervised = supervisor();
  await failureOf(supervised.start());
  await until(() => everyProcess.length >= 4 && supervised.state.phase.is === "waiting");
  engine();
  await supervised.control.reload();
  expect(supervised.state.phase).toMatchObject({ is: "running", ready: true });
});

test("an overtaken start or stop rejects with the reason", async () => {
  engine({ onTerm: "sleep 0.2; exit 0" });
  const supervised = supervisor();
  await supervised.start();
  const stopping = failureOf(supervised.stop());
  const starting = supervised.start();
  expect((await stopping).message).toBe("The overlay engine was started again in between");
  await starting;
  const again = failureOf(supervised.restart());
  await supervised.stop();
  expect((await again).message).toBe("The overlay engine was stopped in between");
});

test("an engine that ignores SIGTERM is killed after ten seconds", async () => {
  engine({ onTerm: ":" });
  const supervised = supervisor();
  await supervised.start();
  const from = performance.now();
  await supervised.stop();
  expect((performance.now() - from) * speed).toBeGreaterThanOrEqual(10_000);
  expect(living()).toEqual([]);
});

test("release() keeps the engine running; the next supervisor adopts it and detects its end", async () => {
  engine();
  const first = supervisor();
  await first.start();
  const before = first.process?.pid;
  first.release();
  const second = supervisor("up");
  expect(second.adopt(recorded)).toBe(true);
  await second.start();
  expect(second.process?.pid).toBe(before ?? 0);
  expect(everyProcess).toHaveLength(1);
  await second.control.reload();
  process.kill(before ?? 0, "SIGKILL");
  await until(
    () => everyProcess.length === 2 && living().length === 1 && second.state.phase.is === "running",
  );
  await second.stop();
  expect(living()).toEqual([]);
});

test("reload() succeeds without evidence if log level or log path hide it", async () => {
  const hushed = { onHup: ":" };
  engine(hushed);
  const first = supervisor();
  await first.start();
  expect((await failureOf(first.control.reload())).message).toContain("no reload");
  first.release();
  let silent = true;
  const adopted = supervisor("up", { isSilent: () => silent });
  adopted.adopt(recorded);
  await adopted.start();
  // From a silent level to another: the log does not show the reload itself yet.
  silent = false;
  await adopted.control.reload();
  expect((await failureOf(adopted.control.reload())).message).toContain("no reload");
  // And back: the new configuration hides the next reload.
  silent = true;
  await adopted.control.reload();
  adopted.release();
  const elsewhere = supervisor("up", { writesLog: () => false });
  elsewhere.adopt(recorded);
  await elsewhere.start();
  await elsewhere.control.reload();
}, 120_000);

test("adopt() stops an engine that should be down, and ignores an unrelated process", async () => {
  engine();
  const first = supervisor();
  await first.start();
  first.release();
  const unrelated = Bun.spawn(["/bin/sleep", "60"]);
  const second = supervisor("down");
  expect(second.adopt({ pid: unrelated.pid, started: "another boot:1" })).toBe(false);
  expect(second.adopt(recorded)).toBe(true);
  await until(() => living().length === 0);
  await until(() => second.state.phase.is === "stopped");
  expect(unrelated.killed).toBe(false);
  unrelated.kill();
  await unrelated.exited;
});

test("an unrecorded engine is found and adopted instead of starting a second one", async () => {
  const configPath = join(directory, "config.yml");
  // The real find looks for exactly one program with these arguments.
  const left = Bun.spawn(["/bin/sh", "-config", configPath], { stdin: "pipe", stderr: "ignore" });
  const asEngine = Bun.spawn(["/usr/bin/tail", "-f", "/dev/null", "-config", configPath], {
    stderr: "ignore",
  });
  expect(findEngineProcess(configPath)?.pid).not.toBe(asEngine.pid);
  left.kill("SIGKILL");
  asEngine.kill("SIGKILL");
  await Promise.all([left.exited, asEngine.exited]);

  engine();
  const first = supervisor();
  await first.start();
  const unrecorded = recorded;
  first.release();
  const second = supervisor("up", { find: () => unrecorded });
  await second.start();
  expect(second.process?.pid).toBe(unrecorded?.pid ?? 0);
  expect(everyProcess).toHaveLength(1);
});

test("the last request wins in every order of requests", async () => {
  engine();
  const supervised = supervisor();
  for (let round = 0; round < 5; round++) {
    const storm = [
      supervised.start(),
      supervised.stop(),
      supervised.restart(),
      supervised.start(),
      supervised.stop(),
      supervised.start(),
    ];
    await Promise.allSettled(storm);
    await until(() => supervised.state.phase.is === "running");
    expect(living()).toHaveLength(1);
    await Promise.allSettled([
      supervised.restart(),
      supervised.stop(),
      supervised.restart(),
      supervised.stop(),
    ]);
    await until(() => supervised.state.phase.is === "stopped");
    expect(living()).toEqual([]);
  }
});

test("a start waits until the interface of the former engine is gone", async () => {
  engine();
  let left = 5;
  const seen: number[] = [];
  const supervised = supervisor("down", {
    prepare: async () => ({ argv: [join(directory, "engine")], silent: false, device: "ov-acme" }),
    hasInterface: () => left-- > 0,
    spawn(argv, logPath) {
      seen.push(left);
      const spawned = spawnEngine(argv, logPath);
      if (spawned.process !== undefined) everyProcess.push(spawned.process);
      return spawned;
    },
  });
  await supervised.start();
  expect(seen).toEqual([-1]);
});
