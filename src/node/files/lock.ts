// Only one process at a time changes an organization's directory. The lock is the kernel's (flock). The file's text only
// names the holder, for the error message of a process that waited too long.

import { defer } from "../../base/defer.ts";
import { existsSync, readdirSync, rmSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import * as v from "valibot";
import { boundedText, jsonText } from "../../base/text.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { lockFile, type FileLock } from "../../platform/file-lock.ts";
import { renamesOpenDirectories } from "../../platform/file-system.ts";
import type { System } from "../../base/system.ts";
import { identifyProcess, isAlive } from "../../platform/process-identity.ts";
import { readText } from "../../base/open-file.ts";

const text = boundedText(4096);
/** Version 0.1.0 and earlier do not use flock: their lock is a file with an `id`, valid while its process lives. */
export const Holder = v.object({ pid: v.number(), started: text, command: text, id: v.optional(text) });
type Holder = v.InferOutput<typeof Holder>;

const waitMs = 15_000;
const tryEveryMs = 50;
/** Files of version 0.1.0 that are older than this were left by a killed run. */
const leftOverMs = 60_000;

/** A lock that is not an organization's. `doing`: what the holder does, for the error message. */
type OtherLock = { path: string; doing: string };

/**
 * Runs `work` under the directory's lock. Waits up to 15 s, then throws `busy`, which names the holder. Pass `other` where
 * the lock is not that of an organization.
 */
export async function withLock<T>(
  directory: string,
  command: string,
  system: Pick<System, "sleep">,
  work: () => Promise<T>,
  other?: OtherLock,
): Promise<T> {
  const { path, doing } = other ?? { path: lockPath(directory), doing: "changing this organization" };
  let lock: FileLock | undefined;
  for (let waited = 0; (lock = tryLock(path, directory, command)) === undefined; waited += tryEveryMs) {
    if (waited >= waitMs) throw busyError(path, doing);
    await system.sleep(tryEveryMs);
  }
  using _ = defer(() => lock.release());
  removeLeftOver(directory);
  return await work();
}

/** The lock is inside the directory if the system can rename or remove a directory with an open file; else beside it. */
export function lockPath(directory: string): string {
  return renamesOpenDirectories
    ? join(directory, "lock")
    : join(dirname(directory), `.${basename(directory)}.lock`);
}

/** Undefined if another process holds it. Throws conflict if the directory is gone, or went while the lock was taken. */
function tryLock(path: string, directory: string, command: string): FileLock | undefined {
  const self = identifyProcess(process.pid);
  if (self === undefined) throw new AppError("internal", "Cannot identify this process");
  try {
    // Version 0.1.0 takes a file with this text for its own lock, and waits.
    const note = JSON.stringify({ ...self, command });
    const lock = lockFile(path, { note, isHeldBy: isHeldByFormerVersion });
    if (lock === undefined || existsSync(directory)) return lock;
    lock.release();
  } catch (error) {
    if (systemErrorCode(error) !== "ENOENT") throw error;
  }
  throw vanishedError(directory);
}

function isHeldByFormerVersion(text: string): boolean {
  const holder = readHolder(text);
  return holder?.id !== undefined && isAlive(holder);
}

/** Removes `lock.<pid>` and `lock.<hash>` of killed runs of version 0.1.0, which used them for milliseconds. */
function removeLeftOver(directory: string): void {
  for (const name of readdirSync(directory)) {
    if (!/^lock\.\w+$/.test(name)) continue;
    const path = join(directory, name);
    const writtenAt = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
    if (Date.now() - writtenAt > leftOverMs) rmSync(path, { force: true });
  }
}

function readHolder(text: string): Holder | undefined {
  const parsed = v.safeParse(jsonText(Holder), text);
  return parsed.success ? parsed.output : undefined;
}

/** At its end, `register` renames the directory, and `unregister` removes it. */
function vanishedError(directory: string): AppError {
  return new AppError("conflict", `Another run has renamed or removed ${directory} in the meantime`, {
    hint: `See the result with \`${brand.executable} status\`, and run the command again if needed.`,
  });
}

function busyError(path: string, doing: string): AppError {
  const holder = holderOf(path);
  const who = holder === undefined ? "" : `: ${holder.command} (process ${holder.pid})`;
  return new AppError("busy", `Another command is ${doing}${who}`, {
    hint: "Wait until it ends, then run the command again.",
  });
}

/** Undefined if the file names no holder: on a full disk, or while the lock passes to another process. */
function holderOf(path: string): Holder | undefined {
  try {
    return readHolder(readText(path));
  } catch {
    return undefined;
  }
}
