// Files that survive a kill, a full disk and a power cut: written beside, synced, renamed. Nothing here knows
// what the files mean.

import {
  closeSync,
  fchmodSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { fromSystemError, systemErrorCode } from "./errors.ts";

/** Creates `path` with exactly this mode from the first byte on, and syncs it. Fails if it exists. */
export function writeNewFile(path: string, content: string | Uint8Array, mode: number): void {
  const fd = openSync(path, "wx", mode);
  try {
    fchmodSync(fd, mode);
    const bytes = typeof content === "string" ? Buffer.from(content) : content;
    for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** Replaces `path` whole: temporary file in the same directory, sync, rename, sync of the directory. */
export function writeFileAtomic(path: string, content: string | Uint8Array, mode: number): void {
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`);
  try {
    rmSync(temporary, { force: true });
    writeNewFile(temporary, content, mode);
    renameSync(temporary, path);
    syncDirectory(dirname(path));
  } catch (error) {
    rmSync(temporary, { force: true });
    throw fromSystemError(`write ${path}`, error);
  }
}

/** Makes renames in this directory durable. Windows has no such call and needs none. */
export function syncDirectory(path: string): void {
  if (process.platform === "win32") return;
  const fd = openSync(path, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** Creates the directory and its parents; an existing one keeps its mode. */
export function makeDirectory(path: string, mode: number): void {
  try {
    mkdirSync(path, { recursive: true, mode });
  } catch (error) {
    throw fromSystemError(`create the directory ${path}`, error);
  }
}

/** The text of a file, or undefined if there is none. */
export function readTextIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT" || systemErrorCode(error) === "ENOTDIR") return undefined;
    throw fromSystemError(`read ${path}`, error);
  }
}
