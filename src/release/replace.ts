// Replaces an executable so that a kill at any moment leaves the old or the new one. The new one, the candidate, is written
// beside it and synced, so that the caller can try it; then the old one is kept under a second name, and the candidate renamed.
// Must not know which program it is.

import { defer } from "../base/defer.ts";
import {
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  lstatSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { AppError, fromSystemError } from "../base/errors.ts";
import { systemErrorCode } from "../base/system-errors.ts";
import type { Step } from "../base/plan/plan.ts";
import { planReplaced } from "../base/plan/plan-file.ts";
import { makeDirectory, syncDirectory, writeNewFile } from "../base/files.ts";
import { openPlain } from "../base/open-file.ts";
import { rename as renameFile, replacesRunning, syncAccess } from "../platform/file-system.ts";

/** Path of the replaced executable, kept for a rollback. On Windows it must end in .exe to run. */
export function keptPath(target: string): string {
  return target.endsWith(".exe") ? `${target.slice(0, -4)}.old.exe` : `${target}.old`;
}

/** Writes the candidate (0755, synced) into the target's directory, because a rename cannot cross file systems. */
export function writeCandidate(target: string, content: Uint8Array): string {
  const path = candidatePath(target);
  return makeCandidate(target, path, () => writeNewFile(path, content, 0o755));
}

/** Creates a candidate that is a link to a program of a package, which its package manager updates. */
export function linkCandidate(target: string, program: string): string {
  const path = candidatePath(target);
  return makeCandidate(target, path, () => symlinkSync(program, path));
}

/** Path for a new version of `target`. After a kill, the next run deletes the file. */
export function candidatePath(target: string): string {
  const suffix = target.endsWith(".exe") ? ".exe" : "";
  return join(dirname(target), `${candidatePrefix(target)}${process.pid}${suffix}`);
}

/** Replaces the target by the candidate, and keeps the executable that was there. */
export function swapIn(candidate: string, target: string): void {
  keepFormer(target);
  putInPlace(candidate, target);
}

/** Keeps the target under its second name (`keptPath`), in place of the one kept before. A first installation has no target yet. */
export function keepFormer(target: string): void {
  try {
    if (exists(target)) setAside(target);
  } catch (error) {
    throw fromSystemError(`keep ${target}`, error);
  }
}

/** The plan of keepFormer: the kept executable has the mode of the target. */
export function planKeep(target: string): Step[] {
  const found = statSync(target, { throwIfNoEntry: false });
  return found === undefined ? [] : [planReplaced(keptPath(target), found.mode & 0o777)];
}

/** The plan of rollBack. Throws if nothing is kept. */
export function planExchange(target: string): Step[] {
  const kept = statSync(keptPath(target), { throwIfNoEntry: false });
  if (kept === undefined) throw noneKept(target);
  return [...planKeep(target), planReplaced(target, kept.mode & 0o777)];
}

/** Replaces the target by the candidate. Does not change the kept executable. */
export function putInPlace(candidate: string, target: string): void {
  try {
    syncFile(candidate);
    rename(candidate, target);
    syncDirectory(dirname(target));
  } catch (error) {
    throw fromSystemError(`replace ${target}`, error);
  }
}

/** Replaces the target by the kept executable, which stays kept: repeating this is safe. */
export function bringBack(target: string): void {
  putInPlace(candidateOfKept(target), target);
}

/** Exchanges the target and the kept executable: a second rollback undoes the first. */
export function rollBack(target: string): void {
  swapIn(candidateOfKept(target), target);
}

function noneKept(target: string): AppError {
  return new AppError("failed", `There is no previous version of ${target}`, {
    hint: "A rollback is possible after an update.",
  });
}

/** Gives the kept executable the name of a candidate as well. */
function candidateOfKept(target: string): string {
  const kept = keptPath(target);
  if (!exists(kept)) throw noneKept(target);
  const path = candidatePath(target);
  try {
    addName(kept, path);
  } catch (error) {
    throw fromSystemError(`restore ${kept}`, error);
  }
  return path;
}

/** Deletes candidates of killed runs. Keeps those of running processes. */
export function sweepCandidates(target: string): void {
  const directory = dirname(target);
  if (!existsSync(directory)) return;
  for (const name of readdirSync(directory)) {
    if (!name.startsWith(candidatePrefix(target))) continue;
    const pid = Number.parseInt(name.slice(candidatePrefix(target).length), 10);
    if (!isRunning(pid)) removeUnlessRunning(join(directory, name));
  }
}

/** Deletes a file. Windows cannot delete a running executable: the next run deletes that. */
function removeUnlessRunning(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch (error) {
    if (replacesRunning) throw error;
  }
}

function isRunning(pid: number): boolean {
  if (!(pid > 0)) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return systemErrorCode(error) === "EPERM";
  }
}

/** The names of candidates: this, then the id of the process that made them. */
function candidatePrefix(target: string): string {
  return `.${basename(target, ".exe")}.new.`;
}

/** Makes the candidate at `path`; after a failure nothing is there. Returns the path. */
function makeCandidate(target: string, path: string, write: () => void): string {
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

/** Gives the target its second name. Where the system can, it also keeps its first one: at no moment may there be no target. */
function setAside(target: string): void {
  const kept = keptPath(target);
  if (!replacesRunning) {
    // Windows can rename a running executable, but not replace it. The one kept before may run, too.
    const keptBefore = `${candidatePath(target)}.gone`;
    if (exists(kept)) rename(kept, keptBefore);
    rename(target, kept);
    return removeUnlessRunning(keptBefore);
  }
  const added = `${candidatePath(target)}.old`;
  addName(target, added);
  rename(added, kept);
}

/** Renames. rename(2) does nothing if both names are one file, as a killed run may leave them: then `from` is deleted. */
function rename(from: string, to: string): void {
  renameFile(from, to);
  rmSync(from, { force: true });
}

/** Gives an executable another name; of a link, makes a link to the same program. */
function addName(path: string, name: string): void {
  rmSync(name, { force: true });
  if (lstatSync(path).isSymbolicLink()) symlinkSync(readlinkSync(path), name);
  else linkSync(path, name);
}

function exists(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

function syncFile(path: string): void {
  if (lstatSync(path).isSymbolicLink()) return;
  const fd = openToSync(path);
  if (fd === undefined) return;
  using _ = defer(() => closeSync(fd));
  fsyncSync(fd);
}

/** Opens a file to sync it. Undefined for a running executable on Windows, which cannot be opened, but was synced before it ran. */
function openToSync(path: string): number | undefined {
  try {
    return openPlain(path, syncAccess);
  } catch (error) {
    if (replacesRunning) throw error;
    return undefined;
  }
}
