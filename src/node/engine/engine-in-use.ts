// Which engine an organization runs: the program of its process, and the program of its next start. This is what a check-in
// reports and what a configuration is checked for; never merely a file that was just installed.

import { defer } from "../../base/defer.ts";
import { closeSync, existsSync, fstatSync, statSync, type Stats } from "node:fs";
import { isOlderThan, parseEngineVersion } from "../../engine/features.ts";
import { AppError } from "../../base/errors.ts";
import { ageOf, isAlive, type ProcessIdentity } from "../../platform/process-identity.ts";
import { readBytes } from "../../base/open-file.ts";
import { openProgram } from "../../platform/processes.ts";
import { maxUnpackedBytes } from "../../release/archive.ts";

export type EngineInUse = {
  /** Whether an engine runs. Its version may be unknown. */
  isRunning: boolean;
  /** The engine that the next start runs, and that tests new configurations; undefined if there is none. */
  path: string | undefined;
  /** The version that the next start runs. If that file is damaged or no engine: the running version. */
  next: string | undefined;
  /** The version that runs; undefined if none runs, or if it is unknown. */
  running: string | undefined;
  /**
   * The version to report: the one that runs, or, while none runs, the one of the next start. After a downgrade the older
   * one of both, because both must accept the configuration: the next start may come by itself. Undefined if unknown.
   */
  version: string | undefined;
};

export const noneInUse: EngineInUse = {
  isRunning: false,
  path: undefined,
  next: undefined,
  running: undefined,
  version: undefined,
};

/** The service manager did not say what runs, so no version is reported. `path`: the engine that tests configurations. */
export const unknownInUse = (path: string | undefined): EngineInUse => ({
  ...noneInUse,
  isRunning: true,
  path,
});

export type VersionOf = (program: string) => Promise<string>;

/**
 * `program` is what the next start runs. `fallback` tests configurations if `program` is no engine, for example if a unit
 * starts the engine through another program.
 */
export async function engineInUse(
  process: ProcessIdentity | undefined,
  program: string | undefined,
  versionOf: VersionOf,
  fallback?: string,
): Promise<EngineInUse> {
  const next = await versionIfEngine(program, versionOf);
  const path = next === undefined ? (fallback ?? program) : program;
  const running = process === undefined ? undefined : await runningVersion(process, program, versionOf);
  const isOlder =
    next !== undefined &&
    running !== undefined &&
    isOlderThan(parseEngineVersion(next), parseEngineVersion(running));
  return {
    isRunning: process !== undefined,
    path: path !== undefined && existsSync(path) ? path : undefined,
    next: next ?? running,
    running,
    version: process === undefined || isOlder ? next : running,
  };
}

/** The version of a running engine; undefined if its file was replaced and its memory may not be read. */
export async function runningVersion(
  process: ProcessIdentity,
  program: string | undefined,
  versionOf: VersionOf,
): Promise<string | undefined> {
  const isOfProgram = await runsFile(process, program, versionOf);
  if (isOfProgram === true) return versionIfEngine(program, versionOf);
  return withProgram(process, ({ path }) => versionIfEngine(path, versionOf));
}

/**
 * Whether a process runs this file as it is now. If its program can be opened and is this file or an engine, that decides; else
 * the file's time. Undefined if unknown.
 */
export async function runsFile(
  process: ProcessIdentity,
  path: string | undefined,
  versionOf: VersionOf,
): Promise<boolean | undefined> {
  const file = path === undefined ? undefined : statSync(path, { throwIfNoEntry: false });
  const examined = await withProgram(process, async (program) => ({
    isSame:
      path !== undefined &&
      file !== undefined &&
      (isFile(program.stat, file) || haveSameBytes(program, path)),
    // The program of a script is its interpreter, which says nothing about the file.
    isEngine: (await versionIfEngine(program.path, versionOf)) !== undefined,
  }));
  if (examined?.isSame === true || examined?.isEngine === true) return examined.isSame;
  if (file === undefined) return false;
  return isUnchangedSince(file, process) ? true : undefined;
}

const isFile = (one: Stats, other: Stats) => one.dev === other.dev && one.ino === other.ino;

/** A deleted engine that was installed again counts as the same one. */
function haveSameBytes({ path, stat }: { path: string; stat: Stats }, other: string): boolean {
  if (stat.size !== statSync(other).size) return false;
  return readBytes(path, maxUnpackedBytes).equals(readBytes(other, maxUnpackedBytes));
}

/** Calls `work` with the program of a process. Works for a deleted file too. Undefined if it may not be opened. */
async function withProgram<T>(
  process: ProcessIdentity,
  work: (program: { path: string; stat: Stats }) => Promise<T>,
): Promise<T | undefined> {
  const opened = openProgram(process.pid);
  if (opened === undefined) return undefined;
  using _ = defer(() => closeSync(opened.fd));
  // The file was opened before this check, so it is not the program of a later process with the same id.
  return isAlive(process) ? await work({ path: opened.path, stat: fstatSync(opened.fd) }) : undefined;
}

/** By ctime: a replacement by rename changes that, even if a package brings an old mtime. */
function isUnchangedSince({ ctimeMs }: Stats, process: ProcessIdentity): boolean {
  return ctimeMs <= Date.now() - ageOf(process);
}

/** Undefined if there is no such file, or if it does not report a version as an engine does. */
async function versionIfEngine(
  program: string | undefined,
  versionOf: VersionOf,
): Promise<string | undefined> {
  if (program === undefined || !existsSync(program)) return undefined;
  try {
    return await versionOf(program);
  } catch (error) {
    // A damaged engine must not prevent a check-in, which may bring a revocation.
    if (error instanceof AppError) return undefined;
    throw error;
  }
}
