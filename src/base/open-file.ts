// The one place that opens files that are already there: without waiting, only plain files, and only so many bytes. A FIFO
// would block its reader until another process writes, and a device can do anything. Must not know what the files mean.

import { defer } from "./defer.ts";
import type { Stats } from "node:fs";
import { AppError } from "./errors.ts";
import { systemErrorCode } from "./system-errors.ts";
import { quoteWord } from "./quote.ts";

/** Twice the largest answer of a control plane: no file of this product is larger. */
export const maxFileBytes = 64 * 1024 * 1024;

export type Access = "read" | "update" | "append" | "lock";

/**
 * Opens a plain file, or the one that a link leads to; "lock" follows no link. "append" and "lock" create it with this
 * mode. Throws bad_configuration for anything else that is at this path, and the system's error if it cannot be opened.
 */
export function openPlain(path: string, access: Access = "read", mode = 0o600): number {
  // Checked before it is opened as well: opening a device can already have an effect.
  refuseOddFile(path);
  const { closeSync, fstatSync, openSync } = fs();
  const fd = openSync(path, flagsOf(access), mode);
  try {
    refuseOdd(path, fstatSync(fd));
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Opens a directory, so that it can be synced. */
export function openDirectory(path: string): number {
  const { constants, openSync } = fs();
  return openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
}

/** Checks a file that a library or another program opens: throws like openPlain. A missing file passes. */
export function refuseOddFile(path: string): void {
  const found = fs().statSync(path, { throwIfNoEntry: false });
  if (found !== undefined) refuseOdd(path, found);
}

/** The files that SQLite opens by itself for the database at this path. */
export function sqliteFiles(path: string): string[] {
  return ["", "-journal", "-wal", "-shm"].map((end) => path + end);
}

/** All bytes of a file. Throws like openPlain, and bad_configuration if the file has more than `maxBytes`. */
export function readBytes(path: string, maxBytes = maxFileBytes): Buffer {
  const fd = isHandedOver(path) ? fs().openSync(path, "r") : openPlain(path);
  using _ = defer(() => fs().closeSync(fd));
  return readOpen(fd, path, maxBytes);
}

/** Whether it is a pipe of the shell, as in `--file <(command)`. Reading it may wait: the user started that command. */
function isHandedOver(path: string): boolean {
  return /^\/(dev|proc\/self)\/(stdin|fd\/\d+)$/.test(path);
}

/** Like readBytes, as text. */
export function readText(path: string, maxBytes = maxFileBytes): string {
  return readBytes(path, maxBytes).toString("utf8");
}

/** The bytes between two positions, or those that are there; none if the file does not exist. Throws like openPlain. */
export function readRange(path: string, from: number, to: number): Buffer {
  const { closeSync, fstatSync, readSync } = fs();
  let fd: number;
  try {
    fd = openPlain(path);
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return Buffer.alloc(0);
    throw error;
  }
  using _ = defer(() => closeSync(fd));
  const bytes = Buffer.alloc(Math.max(0, Math.min(to, fstatSync(fd).size) - from));
  return bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, from));
}

/**
 * Appends to a log, which may also be a device or a pipe. It never waits: a pipe that is full, or that no process reads, is
 * an error.
 */
export function appendText(path: string, text: string, mode: number): void {
  const { closeSync, openSync, writeSync } = fs();
  const fd = openSync(path, flagsOf("append"), mode);
  using _ = defer(() => closeSync(fd));
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at);
}

/**
 * Reads an open file from its position to the end. Does not trust its size: that of a file of /proc is 0, and another process may
 * write meanwhile.
 */
export function readOpen(fd: number, path: string, maxBytes: number): Buffer {
  const { fstatSync, readSync } = fs();
  const { size } = fstatSync(fd);
  const parts: Buffer[] = [];
  for (let length = 0; ;) {
    if (Math.max(length, size) > maxBytes) throw tooLarge(path, maxBytes);
    const part = Buffer.allocUnsafe(length < size ? size + 1 - length : 16 * 1024);
    const count = readSync(fd, part, 0, part.length, null);
    if (count === 0) return Buffer.concat(parts);
    parts.push(part.subarray(0, count));
    length += count;
  }
}

function refuseOdd(path: string, found: Stats): void {
  if (found.isFile()) return;
  throw new AppError("bad_configuration", `Cannot open ${path}: it is ${kindOf(found)}, not a file`, {
    hint: isDevice(found)
      ? "Name a regular file, or put one in its place."
      : `Look at it with \`ls -ld ${quoteWord(path)}\`: move it away, or name a regular file.`,
  });
}

/** A device such as /dev/null stays where it is. */
const isDevice = (found: Stats) => found.isCharacterDevice() || found.isBlockDevice();

/** The kind of a file in a sentence: `a FIFO`. */
export function kindOf(found: Stats): string {
  if (found.isFile()) return "a file";
  if (found.isDirectory()) return "a directory";
  if (found.isFIFO()) return "a FIFO";
  return found.isSocket() ? "a socket" : "a device";
}

function tooLarge(path: string, maxBytes: number): AppError {
  const maximum = maxBytes < 1024 * 1024 ? `${maxBytes} bytes` : `${Math.floor(maxBytes / 1024 / 1024)} MiB`;
  return new AppError("bad_configuration", `Cannot read ${path}: it is larger than ${maximum}`);
}

function flagsOf(access: Access): number {
  const { O_APPEND, O_CREAT, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY } = fs().constants;
  const flags = {
    read: O_RDONLY,
    update: O_RDWR,
    append: O_WRONLY | O_APPEND | O_CREAT,
    lock: O_RDWR | O_CREAT | O_NOFOLLOW,
  };
  // Windows has neither O_NOCTTY nor O_NONBLOCK: undefined counts as 0. Its pipes have names of their own.
  return flags[access] | O_NOCTTY | O_NONBLOCK;
}

/** Loaded late: it costs a third of an empty start, and most commands log to no file. */
function fs(): typeof import("node:fs") {
  return require("node:fs");
}
