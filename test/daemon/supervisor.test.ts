// One team's engine under supervision, with real processes: a shell script stands in for the engine and speaks its log.
// Time runs twenty times as fast as outside.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { spawnEngine, watchEnd } from "../../src/daemon/processes.ts";
import {
  supervise,
  type RunningProcess,
  type Supervisor,
  type SupervisorDeps,
} from "../../src/daemon/supervisor.ts";
import { AppError } from "../../src/errors.ts";
import { findEngine } from "../../src/node/engine/found-engine.ts";
import { ageOf, isAlive, type ProcessIdentity } from "../../src/platform/process-identity.ts";
import { realSystem } from "../../src/system.ts";

const speed = 20;
const real = realSystem();
const system = { ...real, sleep: (ms: number, signal?: AbortSignal) => real.sleep(ms / speed, signal) };
const quiet = { debug() {}, info() {}, warn() {}, error() {} };

let directory = "";
let noted: RunningProcess | undefined;
let everyProcess: ProcessIdentity[] = [];
let supervisors: Supervisor[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "supervisor-"));
  [noted, everyProcess, supervisors] = [undefined, [], []];
});

afterEach(async () => {
  for (const supervisor of supervisors) supervisor.release();
  for (const process of everyProcess) if (isAlive(process)) globalThis.process.kill(process.pid, "SIGKILL");
  rmSync(directory, { recursive: true, force: true });
});

type StandIn = { beforeReady?: string; onHup?: string; onTerm?: string };

const say = (msg: string, level = "info") => `echo '{"level":"${level}","msg":"${msg}"}'`;
const applied = `${say("Caught HUP, reloading config")}; ${say("Client cert refreshed from disk")}`;

/** Writes the stand-in; what it does can be changed while it is supervised. */
function engine({ beforeReady = "", onHup = applied, onTerm = "exit 0" }: StandIn = {}): void {
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
  const made = supervise(wanted, {
    team: "acme",
    logPath: join(directory, "logs", "acme.log"),
    system,
    monotonic: () => performance.now() * speed,
    log: quiet,
    isSilent: () => false,
    logsHere: () => true,
    prepare: async () => ({ argv: [join(directory, "engine")], silent: false }),
    find: () => undefined,
    ageOf,
    spawn(argv, logPath) {
      const spawned = spawnEngine(argv, logPath);
      if (spawned.process !== undefined) everyProcess.push(spawned.process);
      return spawned;
    },
    watchEnd: (process, signal) => watchEnd(process, system, signal),
    remember: (process) => (noted = process),
    changed() {},
    ...change,
  });
  supervisors.push(made);
  return made;
}

const living = () => everyProcess.filter(isAlive);
const isUp = (team: Supervisor) => {
  const { phase } = team.state();
  return phase.is === "running" && phase.ready;
};

async function until(what: () => boolean): Promise<void> {
  for (let waited = 0; !what(); waited += 5) {
    if (waited > 10_000) throw new Error(`Waited in vain for ${what.toString()}`);
    await Bun.sleep(5);
  }
}

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
  const team = supervisor();
  await team.start();
  expect(team.state().phase).toMatchObject({ is: "running", ready: true });
  expect(living().map(({ pid }) => pid)).toEqual([team.process()?.pid ?? 0]);
  expect(noted?.pid).toBe(team.process()?.pid ?? 0);
  await team.start();
  expect(everyProcess).toHaveLength(1);
  await team.stop();
  expect(living()).toEqual([]);
  expect(noted).toBeUndefined();
  expect(team.message()).toBeUndefined();
});

test("start() rejects with the engine's own words, and the engine is tried again until it comes up", async () => {
  engine({ beforeReady: `${say("Failed to get a tun/tap device", "error")}; exit 1` });
  const team = supervisor();
  const failure = await failureOf(team.start());
  expect(failure.message).toBe("The overlay engine ended (exit status 1): Failed to get a tun/tap device");
  await until(() => everyProcess.length >= 2);
  engine();
  await until(() => living().length === 1 && team.state().phase.is === "running");
  await until(() => team.message() === undefined);
});

test("start() rejects with the reason that forbids it, and nothing is started", async () => {
  const team = supervisor("down", {
    prepare: () => Promise.reject(new AppError("collision", "acme cannot run beside beta")),
  });
  expect((await failureOf(team.start())).message).toContain("beside beta");
  expect(team.state().phase.is).toBe("waiting");
  expect(everyProcess).toEqual([]);
  await team.stop();
  expect(team.state().phase.is).toBe("stopped");
});

test("an engine that is killed comes back, and there is never a second one", async () => {
  engine();
  // The wait between two lives is too short to be sure to see it from outside.
  const seen: string[] = [];
  const team = supervisor("down", {
    changed: () => seen.push(`${team.state().phase.is}, ${living().length} alive: ${team.message() ?? ""}`),
  });
  await team.start();
  for (let round = 1; round <= 3; round++) {
    const before = team.process()?.pid ?? 0;
    seen.length = 0;
    process.kill(before, "SIGKILL");
    await until(() => seen.some((each) => each.startsWith("waiting")) && isUp(team));
    expect(seen).toEqual([
      "waiting, 0 alive: The overlay engine ended (SIGKILL)",
      "starting, 0 alive: The overlay engine ended (SIGKILL)",
      "running, 1 alive: The overlay engine ended (SIGKILL)",
      "running, 1 alive: ",
    ]);
    expect(team.process()?.pid).not.toBe(before);
    expect(living()).toHaveLength(1);
  }
});

test("a reload waits until the engine is ready, and resolves when the log shows it", async () => {
  engine({ beforeReady: "sleep 0.1" });
  const team = supervisor();
  const started = team.start();
  await until(() => team.state().phase.is === "running");
  await team.control.reload();
  await started;
  expect(everyProcess).toHaveLength(1);
  expect(readFileSync(join(directory, "logs", "acme.log"), "utf8").match(/Caught HUP/g)).toHaveLength(2);
  await Promise.all([team.control.reload(), team.control.reload()]);
  expect(living()).toHaveLength(1);
});

test("a reload that the engine refuses, or dies of, is told", async () => {
  engine({ onHup: `${say("Caught HUP, reloading config")}; ${say("Could not load client cert", "error")}` });
  const team = supervisor();
  await team.start();
  expect((await failureOf(team.control.reload())).message).toContain("Could not load client cert");
  engine({ onHup: "exit 2" });
  await team.restart();
  expect((await failureOf(team.control.reload())).message).toContain("ended");
});

test("a reload between two tries brings the next one forward", async () => {
  engine({ beforeReady: "sleep 0.02; exit 1" });
  const team = supervisor();
  await failureOf(team.start());
  await until(() => everyProcess.length >= 4 && team.state().phase.is === "waiting");
  engine();
  await team.control.reload();
  expect(team.state().phase).toMatchObject({ is: "running", ready: true });
});

test("who stops or starts and is overtaken is told by what", async () => {
  engine({ onTerm: "sleep 0.2; exit 0" });
  const team = supervisor();
  await team.start();
  const stopping = failureOf(team.stop());
  const starting = team.start();
  expect((await stopping).message).toBe("The overlay engine was started again in between");
  await starting;
  const again = failureOf(team.restart());
  await team.stop();
  expect((await again).message).toBe("The overlay engine was stopped in between");
});

test("an engine that ignores SIGTERM is killed after ten seconds", async () => {
  engine({ onTerm: ":" });
  const team = supervisor();
  await team.start();
  const from = performance.now();
  await team.stop();
  expect((performance.now() - from) * speed).toBeGreaterThanOrEqual(10_000);
  expect(living()).toEqual([]);
});

test("release() leaves the engine alive, and the next supervisor takes it up and notices its end", async () => {
  engine();
  const first = supervisor();
  await first.start();
  const before = first.process()?.pid;
  first.release();
  const second = supervisor("up");
  expect(second.adopt(noted)).toBe(true);
  await second.start();
  expect(second.process()?.pid).toBe(before ?? 0);
  expect(everyProcess).toHaveLength(1);
  await second.control.reload();
  process.kill(before ?? 0, "SIGKILL");
  await until(
    () => everyProcess.length === 2 && living().length === 1 && second.state().phase.is === "running",
  );
  await second.stop();
  expect(living()).toEqual([]);
});

test("a reload that the log cannot show is believed, by whatever the engine's level or its log is hidden", async () => {
  const hushed = { onHup: ":" };
  engine(hushed);
  const first = supervisor();
  await first.start();
  expect((await failureOf(first.control.reload())).message).toContain("no reload");
  first.release();
  let silent = true;
  const adopted = supervisor("up", { isSilent: () => silent });
  adopted.adopt(noted);
  await adopted.start();
  // From a level that is silent to one that is not: the reload itself is not in the log yet.
  silent = false;
  await adopted.control.reload();
  expect((await failureOf(adopted.control.reload())).message).toContain("no reload");
  // And back: the new configuration says that nothing will be seen.
  silent = true;
  await adopted.control.reload();
  adopted.release();
  const elsewhere = supervisor("up", { logsHere: () => false });
  elsewhere.adopt(noted);
  await elsewhere.start();
  await elsewhere.control.reload();
}, 30_000);

test("adopt() ends an engine that is not wanted any more, and takes no stranger for it", async () => {
  engine();
  const first = supervisor();
  await first.start();
  first.release();
  const stranger = Bun.spawn(["/bin/sleep", "60"]);
  const second = supervisor("down");
  expect(second.adopt({ pid: stranger.pid, started: "another boot:1" })).toBe(false);
  expect(second.adopt(noted)).toBe(true);
  await until(() => living().length === 0);
  await until(() => second.state().phase.is === "stopped");
  expect(stranger.killed).toBe(false);
  stranger.kill();
  await stranger.exited;
});

test("an engine that nobody has noted is found and taken up instead of a second one beside it", async () => {
  const configPath = join(directory, "config.yml");
  // The real find looks for exactly one program with these arguments.
  const left = Bun.spawn(["/bin/sh", "-config", configPath], { stdin: "pipe", stderr: "ignore" });
  const asEngine = Bun.spawn(["/usr/bin/tail", "-f", "/dev/null", "-config", configPath], {
    stderr: "ignore",
  });
  expect(findEngine(configPath)?.pid).not.toBe(asEngine.pid);
  left.kill("SIGKILL");
  asEngine.kill("SIGKILL");
  await Promise.all([left.exited, asEngine.exited]);

  engine();
  const first = supervisor();
  await first.start();
  const forgotten = noted;
  first.release();
  const second = supervisor("up", { find: () => forgotten });
  await second.start();
  expect(second.process()?.pid).toBe(forgotten?.pid ?? 0);
  expect(everyProcess).toHaveLength(1);
});

test("whatever is asked for in whatever order, what was asked for last is what is there", async () => {
  engine();
  const team = supervisor();
  for (let round = 0; round < 5; round++) {
    const storm = [team.start(), team.stop(), team.restart(), team.start(), team.stop(), team.start()];
    await Promise.allSettled(storm);
    await until(() => team.state().phase.is === "running");
    expect(living()).toHaveLength(1);
    await Promise.allSettled([team.restart(), team.stop(), team.restart(), team.stop()]);
    await until(() => team.state().phase.is === "stopped");
    expect(living()).toEqual([]);
  }
});
