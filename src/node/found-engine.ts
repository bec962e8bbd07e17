// The engine of an organization that nobody here has started: by hand, by a container's init, or by a daemon that was
// killed. It is found by its arguments; it can be reloaded and stopped, but to start it again is its owner's affair.

import { readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../errors.ts";
import { readTextIfThere } from "../files.ts";
import type { Log } from "../log.ts";
import type { System } from "../system.ts";
import { isSilent } from "./config-file.ts";
import { controlEngine } from "./engine.ts";
import { fileLog, type LogSource } from "./engine-log.ts";
import type { TeamControl } from "./follow.ts";
import type { Organization } from "./organizations.ts";
import { identifyProcess, isAlive, signalProcess, type ProcessIdentity } from "./process.ts";

const stopMs = 10_000;
/** SIGHUP kills an engine in its first moments, and nobody tells when it was ready. */
const settleMs = 2000;

/** Control over it; where none runs, there is nothing to do. */
export function foundEngine(
  { slug, directory }: Organization,
  system: Pick<System, "sleep" | "platform">,
  log: Log,
): TeamControl {
  const path = join(directory, "config.yml");
  const find = () => findEngine(path);
  const configText = () => readTextIfThere(path) ?? "";
  const byHand = (what: string) =>
    log.warn(`${what}: it was not started by this program`, {
      team: slug,
      config: join(directory, "config.yml"),
    });
  return {
    running: async () => find() !== undefined,
    async reload() {
      const identity = find();
      if (identity === undefined) return;
      await system.sleep(Math.max(0, settleMs - ageOf(identity)));
      const source = logOf(identity);
      const engine = {
        process: () => identity,
        log: source ?? (() => ({ read: () => [] })),
        restart: () => Promise.resolve(),
        silent: () => source === undefined || isSilent(configText()),
      };
      await controlEngine(engine, system).reload();
    },
    restart: async () =>
      byHand("Restart the overlay engine yourself to take up all of the new configuration"),
    async alive(ms) {
      const identity = find();
      if (identity === undefined) return;
      for (let waited = 0; waited < ms; waited += 50) {
        await system.sleep(50);
        if (!isAlive(identity)) throw new AppError("engine_failed", "The overlay engine ended");
      }
    },
    start: async () => byHand("Start the overlay engine yourself"),
    stop: () => stop(find(), system),
    wanted: async () => find() !== undefined,
  };
}

/** SIGTERM, and SIGKILL after 10 s. */
async function stop(identity: ProcessIdentity | undefined, system: Pick<System, "sleep">): Promise<void> {
  if (identity === undefined || !signalProcess(identity, "SIGTERM")) return;
  for (let waited = 0; waited < stopMs; waited += 20) {
    if (!isAlive(identity)) return;
    await system.sleep(20);
  }
  signalProcess(identity, "SIGKILL");
}

/** The file that the engine writes its log to, if it is one. */
function logOf({ pid }: ProcessIdentity): LogSource | undefined {
  try {
    const path = readlinkSync(`/proc/${pid}/fd/1`);
    return statSync(path).isFile() ? fileLog(path) : undefined;
  } catch {
    // A pipe, a terminal, or a file that is gone: nothing to read there.
    return undefined;
  }
}

/**
 * The engine that runs with this configuration, wherever it came from: a daemon that was killed between the start and
 * the note of it has left one. Same user, same network namespace, and no other arguments. Linux only; elsewhere the
 * note is all there is.
 */
export function findEngine(configPath: string): ProcessIdentity | undefined {
  if (process.platform !== "linux") return undefined;
  const tail = ["-config", configPath, ""].join("\0");
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    const identity = runsWith(pid, tail) ? identifyProcess(pid) : undefined;
    if (identity !== undefined) return identity;
  }
  return undefined;
}

function runsWith(pid: number, tail: string): boolean {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, "utf8");
    if (!words.endsWith(`\0${tail}`) || words.indexOf("\0") !== words.length - tail.length - 1) return false;
    const own = statSync(`/proc/${pid}`).uid === process.getuid?.();
    return own && readlinkSync(`/proc/${pid}/ns/net`) === readlinkSync("/proc/self/ns/net");
  } catch {
    // It ended while we looked, or is none of ours.
    return false;
  }
}

/** How long a process has lived, in ms; 0 where the system does not tell. */
export function ageOf(process: ProcessIdentity): number {
  const ticks = Number(process.started.split(":").at(-1));
  try {
    const uptimeS = Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]);
    // proc(5): clock ticks are 1/100 s on every Linux that Bun runs on.
    const age = uptimeS * 1000 - ticks * 10;
    return Number.isFinite(age) ? Math.max(0, age) : 0;
  } catch {
    // No /proc: the caller takes the process for a fresh one, which is the careful choice.
    return 0;
  }
}
