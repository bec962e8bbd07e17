// The generations of an organization's files: each configuration of the control plane is a complete directory,
// generations/NUMBER, and one rename of the link `current` switches to another one. Each has its state, sync.json. No network
// access here.

import { given } from "../../base/given.ts";
import { chmodSync, existsSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
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
import { buildInfo } from "../../build-info.ts";
import { maxEtagLength, type ConfigFiles } from "../../protocol/download.ts";
import { DataPlane } from "./config/data-plane.ts";
import type { Organization } from "./organizations.ts";
import { readValidJson } from "./json-file.ts";

const time = v.pipe(v.string(), v.maxLength(64));
const address = v.pipe(v.string(), v.maxLength(64));
const hostName = v.pipe(v.string(), v.maxLength(253));
const LeftOutList = v.pipe(
  v.array(
    v.object({
      key: v.pipe(v.string(), v.maxLength(1000)),
      reason: v.pipe(v.string(), v.maxLength(1000)),
    }),
  ),
  v.maxLength(10_000),
);
/** sync.json: how a configuration was received, checked and applied. */
export const SyncState = v.object({
  etag: v.pipe(v.string(), v.maxLength(maxEtagLength)),
  config_version: v.number(),
  applied_at: time,
  certificate_not_after: v.optional(time),
  /** When certificates or CAs of the overlay last changed; unset if never since the registration. */
  certificates_changed_at: v.optional(time),
  /** By DNS name: the addresses that config.yml has instead (host-names.ts). */
  host_names: v.optional(
    v.pipe(v.record(hostName, v.pipe(v.array(address), v.maxLength(10_000))), v.maxEntries(200_000)),
  ),
  /**
   * A later configuration that the running engine refused (applying/recent-refusal.ts); unset if none was since this one was
   * applied.
   */
  refused: v.optional(
    v.object({
      digest: v.pipe(v.string(), v.maxLength(64)),
      reason: v.pipe(v.string(), v.maxLength(4000)),
      at: time,
    }),
  ),
  /** The state of this machine that decided about routes and ports (machine-facts.ts); unset if nothing depended on it. */
  surroundings: v.optional(v.pipe(v.array(address), v.maxLength(10_000))),
  /** The number of the order whose settings of a rollout came with it, and whether config.yml has them; unset: none came. */
  settings: v.optional(v.object({ order: v.number(), used: v.boolean() })),
  /** Names that had no address, so that settings were left out (unresolved-names.ts); unset if there are none. */
  unresolved: v.optional(v.pipe(v.array(hostName), v.maxLength(100))),
  /** Offloads and buffers, as config.yml has them (data-plane.ts); unset before they were first decided. */
  data_plane: v.optional(DataPlane),
  /** `rulesVersion` of the program that checked config.yml. */
  rules: v.optional(v.number()),
  /** The version of that program; unset by earlier programs. */
  checked_by: v.optional(v.pipe(v.string(), v.maxLength(64))),
  /** The settings that the check left out. */
  left_out: v.optional(LeftOutList),
  /** The seal that was held when the configuration was examined, and what it would refuse; unset if there is none. */
  seal: v.optional(
    v.object({
      number: v.number(),
      hash: v.pipe(v.string(), v.maxLength(64)),
      /** Seconds since 1970. */
      made_at: v.number(),
      objections: LeftOutList,
      /** What it objects to is kept out. */
      enforced: v.optional(v.literal(true)),
    }),
  ),
});

export type SyncState = v.InferOutput<typeof SyncState>;
/** Increase with every change of what sent-config.ts leaves out: the configuration in force is then checked again. */
export const rulesVersion = 10;

/**
 * Whether this version of the program has checked config.yml. If another version has run since, it may have followed other rules or
 * damaged the file, which nothing else would notice after a return to this version.
 */
export function isChecked({ rules, checked_by: by }: SyncState): boolean {
  return rules === rulesVersion && by === buildInfo.version;
}

/** The files of a generation, in the order of writing. All are public: 0644. */
export const generationFiles = ["ca.crt", "host.crt", "node.crt", "config.yml", "node-config.json"] as const;

/** The current one, and two to roll back to. */
const keptGenerations = 3;
/** An empty file in a generation that the engine runs with, or ran with. */
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
  const all = join(directory, "generations");
  const name = String(Math.max(0, ...generations(directory)) + 1);
  const staged = join(all, name);
  try {
    makeDirectory(all, 0o755);
    mkdirSync(staged);
    makePublic(all, staged);
    for (const file of generationFiles) {
      const content = files[file];
      if (content !== undefined) writeNewFile(join(staged, file), content, 0o644);
    }
    writeNewFile(join(staged, "server.yml"), serverYml, 0o644);
    writeNewFile(join(staged, "sync.json"), `${JSON.stringify(state)}\n`, 0o644);
    syncDirectory(staged);
    syncDirectory(all);
    return name;
  } catch (error) {
    removeTree(staged);
    throw fromSystemError(`write a configuration below ${all}`, error);
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

/** Completes a switch that a kill interrupted. Also corrects the modes that an older version gave to directories. */
export function finishSwitch(directory: string): void {
  try {
    makePublic(join(directory, "generations"), generationPointer.activeDirectory(directory));
    generationPointer.follow(directory, generationFiles);
  } catch (error) {
    throw fromSystemError(`finish the switch of ${directory}`, error);
  }
}

/** Its name, a number. Undefined: the organization has no generations. */
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
  const kept = all.filter((name) => name <= current).slice(-keptGenerations);
  for (const name of all) {
    if (!kept.includes(name)) dropGeneration(directory, String(name));
  }
}

/** The newest generation before the current one that the engine ran with. */
export function lastApplied(directory: string): string | undefined {
  const current = Number(currentGeneration(directory) ?? 0);
  const wasApplied = (name: number) => existsSync(join(directory, "generations", String(name), appliedMark));
  const found = generations(directory).findLast((name) => name < current && wasApplied(name));
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
