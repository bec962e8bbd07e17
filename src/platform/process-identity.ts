// Identifies a process by its id and its start time, because ids are reused. Must not start a process.

import { fromSystemError } from "../base/errors.ts";
import { ageSince, startOf } from "./processes.ts";

/** `started` is opaque: equal for the same process, different for different processes. */
export type ProcessIdentity = { pid: number; started: string };

/** The running process with this id, or undefined. A zombie counts as ended. */
export function identifyProcess(pid: number): ProcessIdentity | undefined {
  if (!Number.isSafeInteger(pid) || pid <= 0) return undefined;
  const started = startOf(pid);
  return started === undefined ? undefined : { pid, started };
}

export function isAlive(identity: ProcessIdentity): boolean {
  return identifyProcess(identity.pid)?.started === identity.started;
}

/** Age in ms; 0 if unknown, because callers are careful with new processes. */
export function ageOf({ started }: ProcessIdentity): number {
  return ageSince(started);
}

/** Signals exactly this process. Returns false if it has ended. Throws, mostly os_permission, if it is still there. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): boolean {
  if (!isAlive(identity)) return false;
  try {
    process.kill(identity.pid, signal);
    return true;
  } catch (error) {
    if (isAlive(identity)) throw fromSystemError(`signal the process ${identity.pid}`, error);
    return false;
  }
}

/** False if one of them is unknown. */
export const isSameProcess = (a: ProcessIdentity | undefined, b: ProcessIdentity | undefined): boolean =>
  a !== undefined && a.pid === b?.pid && a.started === b.started;
