// The product's one kind of lock: flock(2) on a file, on Windows a file that is open for its holder alone. The kernel
// ends it with the process, so it needs no look at process ids, which differ from container to container.

import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { dirname } from "node:path";
import { AppError, fromSystemError, systemErrorCode } from "../errors.ts";
import { holdFile } from "./windows.ts";

/** Ends the lock and removes its file. A lock that is never released ends with the process, and its file stays. */
export type FileLock = { release(): void };

export type LockOptions = {
  /** Written into the file, for those who find it locked. */
  note?: string;
  /** Whether the text that the file already has means that somebody else holds it. */
  isHeldBy?: (text: string) => boolean;
};

/** Undefined while it is held, by another process or by another part of this one. Throws where it cannot be tried. */
export function lockFile(path: string, options: LockOptions = {}): FileLock | undefined {
  if (process.platform === "win32") {
    const close = holdFile(path, options.note ?? "");
    return close === undefined ? undefined : { release: close };
  }
  try {
    return lockOnUnix(path, options);
  } catch (error) {
    // The caller knows what a directory means that is not there.
    throw systemErrorCode(error) === "ENOENT" ? error : fromSystemError(`lock ${path}`, error);
  }
}

function lockOnUnix(path: string, { note = "", isHeldBy }: LockOptions): FileLock | undefined {
  const [exclusive, atOnce] = [2, 4];
  for (;;) {
    const fd = openOrCreate(path);
    let lock: FileLock | undefined;
    try {
      if (flock()(fd, exclusive | atOnce) !== 0) return undefined;
      // Between our open and our lock the former holder may have removed the file.
      if (!isAt(fd, path)) continue;
      if (isHeldBy?.(readFileSync(fd, "utf8")) === true) return undefined;
      writeNote(fd, note);
      lock = { release: () => release(fd, path) };
      return lock;
    } finally {
      if (lock === undefined) closeSync(fd);
    }
  }
}

/** Linux may answer ENOENT, although O_CREAT is given, where the former holder removes the file at this moment. */
function openOrCreate(path: string): number {
  const { O_RDWR, O_CREAT, O_NOFOLLOW } = constants;
  for (;;) {
    try {
      return openSync(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0o600);
    } catch (error) {
      if (systemErrorCode(error) !== "ENOENT" || !existsSync(dirname(path))) throw error;
    }
  }
}

/** The directory may be another one by now, with another's lock in it. */
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
    // A full disk. The lock holds without the note.
  }
}

/** False in a process without just-in-time code (MemoryDenyWriteExecute=), which cannot call flock(2). */
export function canLockFiles(): boolean {
  try {
    return process.platform === "win32" || flock() !== undefined;
  } catch {
    return false;
  }
}

type Flock = (fd: number, operation: number) => number;
let opened: Flock | undefined;

/** Opened at the first use, and without the rest of the C library: a command that runs every minute pays for it. */
function flock(): Flock {
  if (opened !== undefined) return opened;
  const { dlopen, FFIType }: typeof import("bun:ffi") = require("bun:ffi");
  const args = [FFIType.i32, FFIType.i32] as const;
  const names = libraryNames();
  for (const name of names) {
    try {
      return (opened = dlopen(name, { flock: { args, returns: FFIType.i32 } }).symbols.flock);
    } catch (error) {
      if (name !== names.at(-1)) continue;
      throw new AppError("failed", "Cannot open the C library, which locks files", {
        cause: error,
        hint: "MemoryDenyWriteExecute= must not be set for this service.",
      });
    }
  }
  throw new AppError("internal", "No C library is known for this system");
}

/** The names of the C library, one of which is there. */
export function libraryNames(): string[] {
  if (process.platform === "darwin") return ["libSystem.B.dylib"];
  const musl = existsSync("/lib") ? readdirSync("/lib").filter((name) => name.startsWith("libc.musl-")) : [];
  return ["libc.so.6", ...musl];
}
