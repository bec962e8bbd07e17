// Who a process is: its id alone says nothing, ids are used again. The id together with the time it was started
// names one process of one boot. Nothing here starts or ends a process.

import { ageSince, startOf } from "./processes.ts";

/** `started` is opaque: two readings of one process are equal, two processes' are not. */
export type ProcessIdentity = { pid: number; started: string };

/** The living process with this id, or undefined. A zombie is dead. */
export function identifyProcess(pid: number): ProcessIdentity | undefined {
  if (!Number.isSafeInteger(pid) || pid <= 0) return undefined;
  const started = startOf(pid);
  return started === undefined ? undefined : { pid, started };
}

export function isAlive(identity: ProcessIdentity): boolean {
  return identifyProcess(identity.pid)?.started === identity.started;
}

/** How long it has lived, in ms; 0 where the system does not tell: a fresh one is what the caller is careful with. */
export function ageOf({ started }: ProcessIdentity): number {
  return ageSince(started);
}

/** Sends the signal to exactly this process; false if it is gone. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): boolean {
  if (!isAlive(identity)) return false;
  try {
    process.kill(identity.pid, signal);
    return true;
  } catch {
    // It ended between the look and the signal.
    return false;
  }
}
