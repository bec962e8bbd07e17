// The only kind of lock in the product: flock(2) on a file; on Windows a file opened exclusively. The kernel releases
// it when the process ends. It needs no process ids, which differ between containers.

import { closeSync, existsSync, fstatSync, ftruncateSync, rmSync, statSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { AppError, fromSystemError } from "../base/errors.ts";
import { systemErrorCode } from "../base/system-errors.ts";
import { openPlain, readOpen } from "../base/open-file.ts";
import { openCLibrary } from "./c-library.ts";
import { holdFile } from "./windows/windows.ts";

/** `release` unlocks and removes the file. If the process ends without it, the lock ends too, but the file stays. */
export type FileLock = { release(): void };

export type LockOptions = {
  /** Text in the file for processes that find it locked. */
  note?: string;
  /** Whether the text of the file means that a process holds the lock without flock(2), as version 0.1.0 did. */
  isHeldBy?: (text: string) => boolean;
};

const maxNoteBytes = 64 * 1024;

/** Returns undefined if another process, or another part of this one, holds the lock. Throws if locking fails. */
export function lockFile(path: string, options: LockOptions = {}): FileLock | undefined {
  if (process.platform === "win32") {
    const close = holdFile(path, options.note ?? "");
    return close === undefined ? undefined : { release: close };
  }
  try {
    return lockOnUnix(path, options);
  } catch (error) {
    // Only the caller knows what a missing directory means.
    throw systemErrorCode(error) === "ENOENT" ? error : fromSystemError(`lock ${path}`, error);
  }
}

function lockOnUnix(path: string, { note = "", isHeldBy }: LockOptions): FileLock | undefined {
  // LOCK_EX and LOCK_NB of flock(2).
  const [exclusive, atOnce] = [2, 4];
  for (;;) {
    const fd = openOrCreate(path);
    let lock: FileLock | undefined;
    try {
      if (flock()(fd, exclusive | atOnce) !== 0) return undefined;
      // The previous holder may have removed the file after we opened it.
      if (!isAt(fd, path)) continue;
      if (isHeldBy?.(readOpen(fd, path, maxNoteBytes).toString("utf8")) === true) return undefined;
      writeNote(fd, note);
      lock = { release: () => release(fd, path) };
      return lock;
    } finally {
      if (lock === undefined) closeSync(fd);
    }
  }
}

/** Retries on ENOENT: Linux may return it despite O_CREAT if the previous holder removes the file at this moment. */
function openOrCreate(path: string): number {
  for (;;) {
    try {
      return openPlain(path, "lock");
    } catch (error) {
      if (systemErrorCode(error) !== "ENOENT" || !existsSync(dirname(path))) throw error;
    }
  }
}

/** The directory may have been replaced in the meantime. Then leave the lock of its new owner alone. */
function release(fd: number, path: string): void {
  if (isAt(fd, path)) rmSync(path, { force: true });
  closeSync(fd);
}

function isAt(fd: number, path: string): boolean {
  const [own, there] = [fstatSync(fd), statSync(path, { throwIfNoEntry: false })];
  return there !== undefined && own.ino === there.ino && own.dev === there.dev;
}

function writeNote(fd: number, note: string): void {
  if (note === "") return;
  try {
    ftruncateSync(fd, 0);
    writeSync(fd, note, 0);
  } catch {
    // The disk is full. The lock works without the note.
  }
}

/** False under MemoryDenyWriteExecute=, which blocks the JIT code that calls flock(2). */
export function canLockFiles(): boolean {
  try {
    return process.platform === "win32" || flock() !== undefined;
  } catch {
    return false;
  }
}

type Flock = (fd: number, operation: number) => number;
let opened: Flock | undefined;

function flock(): Flock {
  try {
    return (opened ??= openCLibrary({ flock: { args: ["i32", "i32"], returns: "i32" } }).flock);
  } catch (error) {
    throw new AppError("failed", "Cannot lock files: the C library does not load", {
      cause: error,
      hint: "Remove MemoryDenyWriteExecute= from the unit of this service.",
    });
  }
}
