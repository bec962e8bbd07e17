// One process at a time changes an organization's directory (decisions 6). The lock names its holder; a holder that
// died is recognized by pid and start time, so a stale lock needs nobody's hand.

import { linkSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { AppError, fromSystemError, systemErrorCode } from "../../errors.ts";
import { writeNewFile } from "../../files.ts";
import type { System } from "../../system.ts";
import { identifyProcess, isAlive } from "../../platform/process-identity.ts";

const text = v.pipe(v.string(), v.maxLength(4096));
export const Holder = v.object({ pid: v.number(), started: text, command: text });
type Holder = v.InferOutput<typeof Holder>;

const waitMs = 15_000;
const lookEveryMs = 50;

/** Runs `work` under the directory's lock. Waits up to 15 s, then throws `busy`, which names the holder. */
export async function withLock<T>(
  directory: string,
  command: string,
  system: Pick<System, "sleep">,
  work: () => Promise<T>,
): Promise<T> {
  const path = join(directory, "lock");
  let own: string | undefined;
  for (let waited = 0; (own = take(path, command)) === undefined; waited += lookEveryMs) {
    if (waited >= waitMs) throw busy(path);
    await system.sleep(lookEveryMs);
  }
  try {
    return await work();
  } finally {
    // The directory may be another one by now, with another's lock.
    if (readLock(path) === own) rmSync(path, { force: true });
  }
}

/** What the lock holds that was taken; undefined where it is another's. */
function take(path: string, command: string): string | undefined {
  const self = identifyProcess(process.pid);
  if (self === undefined) throw new AppError("internal", "This process cannot be identified");
  // Written whole beside it, then linked: a lock that is there names its holder, also on a full disk or after a kill.
  const own = `${path}.${process.pid}`;
  const holding = JSON.stringify({ ...self, command, id: crypto.randomUUID() });
  try {
    rmSync(own, { force: true });
    writeNewFile(own, holding, 0o600);
    linkSync(own, path);
    return holding;
  } catch (error) {
    const code = systemErrorCode(error);
    if (code === "ENOENT") throw finished(path);
    if (code !== "EEXIST") throw fromSystemError(`write ${path}`, error);
  } finally {
    rmSync(own, { force: true });
  }
  const text = readLock(path);
  if (text === undefined) return undefined;
  const holder = readHolder(text);
  // One that cannot be read was damaged: nobody's lock is ever there before it is whole.
  if (holder !== undefined && isAlive(holder)) return undefined;
  return removeStale(path, text, command) ? take(path, command) : undefined;
}

/**
 * Only the lock that was read is removed, by one process at a time, which holds a lock for just that: between another's
 * look and its removal there may be a new lock in its place. False where another is at it, or it is gone.
 */
function removeStale(path: string, seen: string, command: string): boolean {
  const claim = `${path}.${Bun.hash(seen).toString(36)}`;
  if (take(claim, command) === undefined) return false;
  try {
    if (readLock(path) !== seen) return false;
    rmSync(path, { force: true });
    return true;
  } finally {
    rmSync(claim, { force: true });
  }
}

/** Undefined where there is none (any more). */
function readLock(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return undefined;
    throw fromSystemError(`read ${path}`, error);
  }
}

function readHolder(text: string): Holder | undefined {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Holder), text);
  return parsed.success ? parsed.output : undefined;
}

/** A registration's own directory gets its final name at the end, one that is left is removed. */
function finished(path: string): AppError {
  return new AppError("conflict", `Another run has finished with ${dirname(path)} in the meantime`, {
    hint: "See what it has done, and run the command again if something is left to do.",
  });
}

function busy(path: string): AppError {
  const holder = readHolder(readLock(path) ?? "");
  // Where there is none at this moment, others were quicker all the time.
  const who = holder === undefined ? "" : `: ${holder.command} (process ${holder.pid})`;
  return new AppError("busy", `Another run works on this organization${who}`, {
    hint: "Wait for it to end, then run the command again.",
  });
}
