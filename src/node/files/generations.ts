// The generations of an organization's files: each configuration of the control plane is a complete directory,
// generations/NUMBER, and one rename of the link `current` switches to another one. A generation's name is its number as a text.
// Each has its state, sync.json. No network access here.

import { given } from "../../base/given.ts";
import { chmodSync, existsSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fromSystemError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import {
  hasMode,
  makeDirectory,
  readTextIfThere,
  removeTree,
  syncDirectory,
  writeFileAtomic,
  writeNewFile,
} from "../../base/files.ts";
import { generationPointer } from "../../platform/generation-pointer.ts";
import type { ConfigFiles } from "../../protocol/download.ts";
import { SyncState } from "./config/sync-state.ts";
import type { Organization } from "./organizations.ts";
import { readValidJson } from "./json-file.ts";

/** The files of a generation, in the order of writing. All are public: 0644. */
export const generationFiles = ["ca.crt", "host.crt", "node.crt", "config.yml", "node-config.json"] as const;

/** The current one, and two to roll back to. */
const keptGenerations = 3;
/** The name of an empty file in each generation that the engine runs with, or ran with. */
export const appliedMark = "taken-up";

/** Undefined also if it is damaged: the next synchronization writes it again. */
export function readSyncState(directory: string): SyncState | undefined {
  return readValidJson(generationFile(directory, "sync.json"), SyncState);
}

/** The version of the configuration that this machine uses. */
export function versionInForce(
  { directory, config }: Pick<Organization, "directory" | "config">,
  state = readSyncState(directory),
): number {
  return state?.config_version ?? config.config_version;
}

/**
 * Writes and syncs a new generation, which nothing uses yet. Returns its name. `serverYml` is config.yml as the control
 * plane sent it: a later change of overrides.yml is applied to it.
 */
export function stageGeneration(
  directory: string,
  files: ConfigFiles,
  state: SyncState,
  serverYml: string,
): string {
  const root = join(directory, "generations");
  const name = String(Math.max(0, ...generations(directory)) + 1);
  const staged = join(root, name);
  try {
    makeDirectory(root, 0o755);
    mkdirSync(staged);
    makePublic(root, staged);
    for (const file of generationFiles) {
      const content = files[file];
      if (content !== undefined) writeNewFile(join(staged, file), content, 0o644);
    }
    writeNewFile(join(staged, "server.yml"), serverYml, 0o644);
    writeNewFile(join(staged, "sync.json"), `${JSON.stringify(state)}\n`, 0o644);
    syncDirectory(staged);
    syncDirectory(root);
    return name;
  } catch (error) {
    removeTree(staged);
    throw fromSystemError(`write a configuration below ${root}`, error);
  }
}

/**
 * One rename makes `name` the current generation. Then the links in the organization's directory follow: a kill in between is
 * repaired by `finishSwitch`.
 */
export function switchGeneration(directory: string, name: string): void {
  try {
    generationPointer.set(directory, name);
    generationPointer.follow(directory, generationFiles);
  } catch (error) {
    throw fromSystemError(`switch ${directory} to its new configuration`, error);
  }
}

/** Directories of public files are 0755, regardless of the umask and of older versions of this program. */
function makePublic(...directories: string[]): void {
  for (const path of directories) if (existsSync(path) && !hasMode(path, 0o755)) chmodSync(path, 0o755);
}

/**
 * Completes a switch that a kill interrupted, and puts links back that were removed: returns their names. Also corrects the modes that
 * an older version gave to directories.
 */
export function finishSwitch(directory: string): string[] {
  try {
    const removed = generationFiles.filter(
      (name) => !existsSync(join(directory, name)) && existsSync(generationFile(directory, name)),
    );
    makePublic(join(directory, "generations"), generationPointer.activeDirectory(directory));
    generationPointer.follow(directory, generationFiles);
    return removed;
  } catch (error) {
    throw fromSystemError(`finish the switch of ${directory}`, error);
  }
}

/** The name of the current one. Undefined: the organization has no generations. */
export function currentGeneration(directory: string): string | undefined {
  try {
    return generationPointer.activeName(directory);
  } catch (error) {
    throw fromSystemError(`read ${directory}/current`, error);
  }
}

/** A file in the directory of the current generation. */
export function generationFile(directory: string, file: string): string {
  return join(generationPointer.activeDirectory(directory), file);
}

/** The files in force. One that is missing is empty, except node.crt, which not every node has. */
export function filesInForce(directory: string): ConfigFiles {
  const text = (file: string) => readTextIfThere(join(directory, file));
  const nodeCrt = text("node.crt");
  return {
    "config.yml": text("config.yml") ?? "",
    "ca.crt": text("ca.crt") ?? "",
    "host.crt": text("host.crt") ?? "",
    "node-config.json": text("node-config.json") ?? "",
    ...given({ "node.crt": nodeCrt }),
  };
}

/** Replaces the state of the current generation: the version or the ETag can change without new files. */
export function writeSyncState(directory: string, state: SyncState): void {
  writeFileAtomic(generationFile(directory, "sync.json"), `${JSON.stringify(state)}\n`, 0o644);
}

/** Whether the engine runs with the current generation. A kill between switch and reload leaves this false. */
export function isApplied(directory: string): boolean {
  return existsSync(generationFile(directory, appliedMark));
}

export function markApplied(directory: string): void {
  if (!isApplied(directory)) writeFileAtomic(generationFile(directory, appliedMark), "", 0o644);
}

/** Removes a generation that is not the current one. */
export function dropGeneration(directory: string, name: string): void {
  removeTree(join(directory, "generations", name));
}

/** Keeps the current generation and the two before it. Removes newer ones too: a killed run left them. */
export function pruneGenerations(directory: string): void {
  const current = Number(currentGeneration(directory) ?? 0);
  const all = generations(directory);
  const kept = all.filter((number) => number <= current).slice(-keptGenerations);
  for (const number of all) {
    if (!kept.includes(number)) dropGeneration(directory, String(number));
  }
}

/** The newest generation before the current one that the engine ran with. */
export function lastApplied(directory: string): string | undefined {
  const current = Number(currentGeneration(directory) ?? 0);
  const wasApplied = (number: number) =>
    existsSync(join(directory, "generations", String(number), appliedMark));
  const found = generations(directory).findLast((number) => number < current && wasApplied(number));
  return found === undefined ? undefined : String(found);
}

/** The numbers of the generations, ascending. */
export function generations(directory: string): number[] {
  try {
    return readdirSync(join(directory, "generations"))
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .sort((a, b) => a - b);
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return [];
    throw error;
  }
}
