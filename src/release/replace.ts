// Replaces an executable so that a kill at any instant leaves the old one or the new one: written beside, synced,
// tried by the caller, the old one kept, renamed. Knows nothing of what the executable is.

import {
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  lstatSync,
  openSync,
  readdirSync,
  readlinkSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { AppError, fromSystemError, systemErrorCode } from "../errors.ts";
import { makeDirectory, syncDirectory, writeNewFile } from "../files.ts";
import { rename as renameFile, replacesRunning, syncFlags } from "../platform/file-system.ts";

/** Where the replaced executable is kept for a roll-back. On Windows it must still end in .exe to be run. */
export function keptPath(target: string): string {
  return target.endsWith(".exe") ? `${target.slice(0, -4)}.old.exe` : `${target}.old`;
}

/** Writes the candidate (0755, synced) into the target's directory, so that no rename crosses a file system. */
export function writeCandidate(target: string, content: Uint8Array): string {
  const path = candidatePath(target);
  return candidate(target, path, () => writeNewFile(path, content, 0o755));
}

/** A candidate that is a link to a program which its package manager keeps up to date. */
export function linkCandidate(target: string, program: string): string {
  const path = candidatePath(target);
  return candidate(target, path, () => symlinkSync(program, path));
}

/** The path at which a download for `target` may be written; a kill leaves it there, the next run sweeps it. */
export function candidatePath(target: string): string {
  const suffix = target.endsWith(".exe") ? ".exe" : "";
  return join(dirname(target), `${prefix(target)}${process.pid}${suffix}`);
}

/** Puts the candidate in the target's place and keeps what was there. */
export function swapIn(path: string, target: string): void {
  keepFormer(target);
  putInPlace(path, target);
}

/** Gives what is there its second name, under which it is kept; a first install has nothing to keep. */
export function keepFormer(target: string): void {
  try {
    if (exists(target)) keep(target);
  } catch (error) {
    throw fromSystemError(`keep ${target}`, error);
  }
}

/** Puts the candidate in the target's place; what is kept stays as it is. */
export function putInPlace(path: string, target: string): void {
  try {
    syncFile(path);
    rename(path, target);
    syncDirectory(dirname(target));
  } catch (error) {
    throw fromSystemError(`replace ${target}`, error);
  }
}

/** The kept one is in the target's place again, and still kept: doing it twice does no harm. */
export function bringBack(target: string): void {
  putInPlace(secondNameOfKept(target), target);
}

/** Exchanges the target and the kept one, so that a second roll-back undoes the first. */
export function rollBack(target: string): void {
  swapIn(secondNameOfKept(target), target);
}

export function noneKept(target: string): AppError {
  return new AppError("failed", `There is no former version beside ${target}`, {
    hint: "A former version is kept when one is replaced.",
  });
}

function secondNameOfKept(target: string): string {
  const kept = keptPath(target);
  if (!exists(kept)) throw noneKept(target);
  const path = candidatePath(target);
  try {
    secondName(kept, path);
  } catch (error) {
    throw fromSystemError(`bring back ${kept}`, error);
  }
  return path;
}

/** Removes what killed runs left beside the target; what a living process writes is its own. */
export function sweepCandidates(target: string): void {
  const directory = dirname(target);
  if (!existsSync(directory)) return;
  for (const name of readdirSync(directory)) {
    if (!name.startsWith(prefix(target))) continue;
    const pid = Number.parseInt(name.slice(prefix(target).length), 10);
    if (!lives(pid)) removeUnlessRunning(join(directory, name));
  }
}

/** A running executable cannot be removed on Windows; the next sweep finds it. */
function removeUnlessRunning(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch (error) {
    if (replacesRunning) throw error;
  }
}

function lives(pid: number): boolean {
  if (!(pid > 0)) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return systemErrorCode(error) === "EPERM";
  }
}

function prefix(target: string): string {
  return `.${basename(target, ".exe")}.new.`;
}

function candidate(target: string, path: string, write: () => void): string {
  try {
    makeDirectory(dirname(target), 0o755);
    rmSync(path, { force: true });
    write();
    return path;
  } catch (error) {
    rmSync(path, { force: true });
    throw fromSystemError(`write beside ${target}`, error);
  }
}

/** The old one gets a second name before its own is taken, so that there is no instant without an executable. */
function keep(target: string): void {
  const kept = keptPath(target);
  if (!replacesRunning) {
    // The kept one may be what still runs: it is moved away too, and swept when it has ended.
    const gone = `${candidatePath(target)}.gone`;
    if (exists(kept)) rename(kept, gone);
    rename(target, kept);
    return removeUnlessRunning(gone);
  }
  const second = `${candidatePath(target)}.old`;
  secondName(target, second);
  rename(second, kept);
}

/** rename(2) leaves both names where they are two of one file, as a killed run may have made them. */
function rename(from: string, to: string): void {
  renameFile(from, to);
  rmSync(from, { force: true });
}

function secondName(path: string, second: string): void {
  rmSync(second, { force: true });
  if (lstatSync(path).isSymbolicLink()) symlinkSync(readlinkSync(path), second);
  else linkSync(path, second);
}

function exists(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

function syncFile(path: string): void {
  if (lstatSync(path).isSymbolicLink()) return;
  const fd = openToSync(path);
  if (fd === undefined) return;
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** What runs cannot be opened for writing on Windows, and was synced before it ran. */
function openToSync(path: string): number | undefined {
  try {
    return openSync(path, syncFlags);
  } catch (error) {
    if (replacesRunning) throw error;
    return undefined;
  }
}
