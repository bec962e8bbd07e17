// Writes, reads and removes files. A kill, a full disk or a power cut leaves the old content or the new one: temporary file,
// sync, rename. Must not know what the files mean.

import { defer } from "./defer.ts";
import {
  chmodSync,
  closeSync,
  fchmodSync,
  fchownSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  rmdirSync,
  rmSync,
  statSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { AppError, fromSystemError, messageOf } from "./errors.ts";
import { systemErrorCode } from "./system-errors.ts";
import { kindOf, openDirectory, readText } from "./open-file.ts";
import { hasModes, rename, syncsDirectories } from "../platform/file-system.ts";

/** Creates `path` with exactly this mode from the first byte, and syncs it if it is to last. Fails if it exists. */
export function writeNewFile(
  path: string,
  content: string | Uint8Array,
  mode: number,
  { owner, isLasting = true }: WriteOptions = {},
): void {
  const fd = createFileFor(path, mode, owner);
  using _ = defer(() => closeSync(fd));
  const bytes = typeof content === "string" ? Buffer.from(content) : content;
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at);
  if (isLasting) fsyncSync(fd);
}

export type FileOwner = { uid: number; gid: number };

type WriteOptions = {
  owner?: FileOwner | undefined;
  /** False: the file does not matter after the next boot, so it is not synced. */
  isLasting?: boolean;
};

/**
 * Creates an empty file with exactly this mode, and returns it open for writing. Fails if it exists. What root creates
 * belongs to `owner`: a service that runs as that user must be able to open it.
 */
export function createFileFor(path: string, mode: number, owner?: FileOwner): number {
  const fd = openSync(path, "wx", mode);
  try {
    fchmodSync(fd, mode);
    if (owner !== undefined && process.getuid?.() === 0) fchownSync(fd, owner.uid, owner.gid);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Replaces `path` atomically: temporary file in the same directory, sync, rename, sync of the directory. */
export function writeFileAtomic(
  path: string,
  content: string | Uint8Array,
  mode: number,
  options: WriteOptions = {},
): void {
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`);
  try {
    rmSync(temporary, { force: true });
    writeNewFile(temporary, content, mode, options);
    rename(temporary, path);
    if (options.isLasting !== false) syncDirectory(dirname(path));
  } catch (error) {
    rmSync(temporary, { force: true });
    throw fromSystemError(`write ${path}`, error);
  }
}

/** Like writeFileAtomic, without the syncs: for files that do not matter after the next boot. */
export function writeFileUntilBoot(path: string, content: string, mode: number): void {
  writeFileAtomic(path, content, mode, { isLasting: false });
}

/**
 * Checks the target path of a command before its work: nothing may be there, or, if it is to be replaced, a file or
 * an empty directory. A link or a device would be replaced, not followed. Throws conflict.
 */
export function requireFreePlace(path: string, replaces?: "file" | "empty directory"): void {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (replaces === "file" && found.isFile()) return;
  const isDirectory = replaces === "empty directory" && found.isDirectory();
  if (isDirectory && readdirSync(path).length === 0) return;
  const kind = found.isSymbolicLink() ? `a symbolic link to ${readlinkSync(path)}` : kindOf(found);
  const what = isDirectory ? "the directory is not empty" : `there is ${kind} already`;
  const hint = "Name another place, where nothing is.";
  throw new AppError("conflict", `Cannot create ${path}: ${what}`, { hint });
}

/** Makes renames in this directory durable. */
export function syncDirectory(path: string): void {
  if (!syncsDirectories) return;
  const fd = openDirectory(path);
  using _ = defer(() => closeSync(fd));
  fsyncSync(fd);
}

/** Creates the directory and its parents with exactly this mode. An existing directory keeps its mode. */
export function makeDirectory(path: string, mode: number): void {
  try {
    // The first directory that was created, or undefined.
    const first = mkdirSync(path, { recursive: true, mode });
    if (first === undefined) return;
    // The umask may have removed bits.
    for (let each = resolve(path); each.length >= resolve(first).length; each = dirname(each)) {
      chmodSync(each, mode);
    }
  } catch (error) {
    throw fromSystemError(`create the directory ${path}`, error);
  }
}

/** Whether the mode gives the group or others any access. False on systems without modes. */
export function isOpenToOthers(path: string): boolean {
  return hasModes && (statSync(path).mode & 0o077) !== 0;
}

/** Whether a file has exactly this mode. True on systems without modes. */
export function hasMode(path: string, mode: number): boolean {
  return !hasModes || (statSync(path).mode & 0o7777) === mode;
}

/** A text that is another one once another file is at this path, or its content was written; "" if there is no file. */
export function fileStamp(path: string): string {
  const found = statSync(path, { bigint: true, throwIfNoEntry: false });
  return found === undefined ? "" : `${found.ino} ${found.mtimeNs} ${found.size}`;
}

/** The text of a file; undefined if it does not exist. */
export function readTextIfThere(path: string): string | undefined {
  try {
    return readText(path);
  } catch (error) {
    // ELOOP: a link that leads to itself leads to no file either.
    if (["ENOENT", "ENOTDIR", "ELOOP"].includes(systemErrorCode(error) ?? "")) return undefined;
    throw fromSystemError(`read ${path}`, error);
  }
}

/** The text of the file at this path, whose parts are joined; empty if it does not exist. */
export const textOrEmpty = (...path: string[]): string => readTextIfThere(join(...path)) ?? "";

/**
 * Deletes a file, a link or a directory tree, if it exists. Bun's own recursive removal fails on some Windows versions.
 */
export function removeTree(path: string): void {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (!found.isDirectory()) return removeFile(path);
  for (const name of readdirSync(path)) removeTree(join(path, name));
  rmdirSync(path);
}

/** Uses unlinkSync, because Bun's rmSync reports a refusal as EFAULT. */
function removeFile(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (systemErrorCode(error) !== "ENOENT") throw error;
  }
}

export type NotRemoved = { path: string; reason: string };

/** Like removeTree, but continues after a failure. Returns what is still there, each path with the reason. */
export function removeAllPossible(path: string): NotRemoved[] {
  const attempt = (work: () => void): NotRemoved[] => {
    try {
      work();
      return [];
    } catch (error) {
      return [{ path, reason: messageOf(error).replace(` (${path})`, "") }];
    }
  };
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return [];
  if (!found.isDirectory()) return attempt(() => removeFile(path));
  const left: NotRemoved[] = [];
  const unreadable = attempt(() => {
    for (const name of readdirSync(path)) left.push(...removeAllPossible(join(path, name)));
  });
  if (left.length > 0 || unreadable.length > 0) return [...left, ...unreadable];
  return attempt(() => rmdirSync(path));
}
