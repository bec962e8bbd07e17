// Engines as processes: starting one so that it outlives us, finding one that a former daemon has left, and learning
// of its end. When to do so is decided elsewhere.

import { closeSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { fromSystemError } from "../errors.ts";
import { identifyProcess, isAlive, type ProcessIdentity } from "../platform/process-identity.ts";
import type { System } from "../system.ts";

export type Spawned = {
  /** Undefined if it had ended before it could be looked at. */
  process: ProcessIdentity | undefined;
  /** Resolves with how it ended: "exit status 1", "SIGKILL". */
  ended: Promise<string>;
};

/** An adopted engine is nobody's child here: its end is noticed within this time. */
const lookEveryMs = 1000;
/** Who it is costs ten times as much to find out as that there is one of this number. */
const wholeLookEvery = 5;

/**
 * Starts an engine in a session of its own, with nothing of our environment. It writes to the log file itself, never
 * to a pipe, which would break with us and take the engine along.
 */
export function spawnEngine(argv: readonly string[], logPath: string): Spawned {
  let log: number;
  try {
    mkdirSync(dirname(logPath), { recursive: true, mode: 0o750 });
    log = openSync(logPath, "a", 0o640);
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
    // What cannot be identified could not be watched or stopped later.
    if (process === undefined) child.kill("SIGKILL");
    return { process, ended };
  } catch (error) {
    throw fromSystemError(`start ${argv[0] ?? ""}`, error);
  } finally {
    closeSync(log);
  }
}

/** NOTIFY_SOCKET above all must not be passed on: newer engines would report themselves to systemd as us. */
function engineEnvironment(): Record<string, string> {
  const passed = ["PATH", "SystemRoot", "SystemDrive", "ProgramData", "TEMP", "TMP"];
  return Object.fromEntries(
    passed.flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

/** Resolves once a process that is not our child has ended; never if the signal ends the watch first. */
export async function watchEnd(
  process: ProcessIdentity,
  system: Pick<System, "sleep">,
  signal: AbortSignal,
): Promise<string> {
  for (let looks = 0; looks % wholeLookEvery === 0 ? isAlive(process) : isInUse(process.pid); looks++)
    await system.sleep(lookEveryMs, signal);
  return "it is gone";
}

function isInUse(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    // There is none: it is ours, so that it may be asked is no question.
    return false;
  }
}
