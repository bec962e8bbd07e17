// Engines as processes: starts one so that it outlives the daemon, and watches for its end. The supervisor decides when.

import { closeSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { fromSystemError } from "../base/errors.ts";
import { identifyProcess, isAlive, type ProcessIdentity } from "../platform/process-identity.ts";
import type { System } from "../base/system.ts";
import { openPlain } from "../base/open-file.ts";

export type Spawned = {
  /** Undefined if it ended before it could be identified. */
  process: ProcessIdentity | undefined;
  /** Resolves with the way it ended: "exit status 1", "SIGKILL". */
  ended: Promise<string>;
};

/** An adopted engine is not our child: polling detects its end within this time. */
const checkEveryMs = 1000;
/** One of so many checks identifies the process. The others only test whether its pid is in use, which costs a tenth. */
const identifyEvery = 5;

/**
 * Starts an engine in its own session without our environment. It writes to the log file itself: a pipe would break when
 * the daemon ends, and the engine would end too.
 */
export function spawnEngine(argv: readonly string[], logPath: string): Spawned {
  let log: number;
  try {
    mkdirSync(dirname(logPath), { recursive: true, mode: 0o700 });
    log = openPlain(logPath, "append");
  } catch (error) {
    throw fromSystemError(`open the log ${logPath}`, error);
  }
  try {
    const child = Bun.spawn([...argv], {
      cwd: "/",
      env: engineEnvironment(),
      stdin: "ignore",
      stdout: log,
      stderr: log,
      detached: true,
    });
    child.unref();
    const ended = child.exited.then((status) =>
      child.signalCode === null ? `exit status ${status}` : String(child.signalCode),
    );
    const process = identifyProcess(child.pid);
    // A process that cannot be identified cannot be watched or stopped later.
    if (process === undefined) child.kill("SIGKILL");
    return { process, ended };
  } catch (error) {
    throw fromSystemError(`start ${argv[0] ?? ""}`, error);
  } finally {
    closeSync(log);
  }
}

/** Must not pass on NOTIFY_SOCKET: newer engines would report to systemd in the daemon's name. */
function engineEnvironment(): Record<string, string> {
  const passed = ["PATH", "SystemRoot", "SystemDrive", "ProgramData", "TEMP", "TMP"];
  return Object.fromEntries(
    passed.flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

/** Resolves once a process that is not our child has ended; rejects if the signal aborts first. */
export async function watchEnd(
  process: ProcessIdentity,
  system: Pick<System, "sleep">,
  signal: AbortSignal,
): Promise<string> {
  // Its pid may belong to another process by now, which only `isAlive` notices.
  for (let checks = 0; checks % identifyEvery === 0 ? isAlive(process) : isInUse(process.pid); checks++)
    await system.sleep(checkEveryMs, signal);
  return "it is gone";
}

function isInUse(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    // ESRCH: there is no such process. EPERM is impossible, because the process is ours.
    return false;
  }
}
