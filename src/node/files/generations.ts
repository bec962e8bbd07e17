// The generations of an organization's files: each configuration of the control plane is a complete directory, and one
// rename of `current` switches to another one. Also the state beside them, sync.json. No network access here.

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
/** State of the configuration in force, kept for the next request. */
export const SyncState = v.object({
  etag: v.pipe(v.string(), v.maxLength(maxEtagLength)),
  config_version: v.number(),
  applied_at: time,
  certificate_not_after: v.optional(time),
  /** When certificates or CAs of the overlay last changed; unset if never since the registration. */
  certificates_changed_at: v.optional(time),
  /** DNS names that config.yml holds as addresses, with these addresses (host-names.ts). */
  host_names: v.optional(
    v.pipe(v.record(hostName, v.pipe(v.array(address), v.maxLength(10_000))), v.maxEntries(200_000)),
  ),
  /** A configuration that the running engine refused (sync.ts); unset if never since the last one that was applied. */
  refused: v.optional(
    v.object({
      digest: v.pipe(v.string(), v.maxLength(64)),
      reason: v.pipe(v.string(), v.maxLength(4000)),
      at: time,
    }),
  ),
  /**
   * The state of this machine that decided about routes and ports (machine-facts.ts); unset where nothing depended on it.
   */
  surroundings: v.optional(v.pipe(v.array(address), v.maxLength(10_000))),
  /** The settings of a rollout that came with it, by the order's number, and whether config.yml has them; unset: none came. */
  settings: v.optional(v.object({ order: v.number(), used: v.boolean() })),
  /** Names that had no address, so that settings were left out (unresolved-names.ts); unset if there are none. */
  unresolved: v.optional(v.pipe(v.array(hostName), v.maxLength(100))),
  /** Offloads and buffers, as config.yml has them (data-plane.ts); unset before they were first decided. */
  data_plane: v.optional(DataPlane),
  /** The version of the rules that checked config.yml (sent-config.ts), and the settings they left out. */
  rules: v.optional(v.number()),
  /** The version of this program that wrote config.yml last, or would write the same; unset by earlier programs. */
  checked_by: v.optional(v.pipe(v.string(), v.maxLength(64))),
  left_out: v.optional(LeftOutList),
  /** The seal that was held when the configuration was examined, and what it would refuse; unset if there is none. */
  seal: v.optional(
    v.object({
      number: v.number(),
      hash: v.pipe(v.string(), v.maxLength(64)),
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
 * Whether config.yml is what this program would write. It is not if another version has run since: that may have followed
 * other rules or damaged the file, and after a return to this version nothing else would find it.
 */
export function isChecked({ rules, checked_by: by }: SyncState): boolean {
  return rules === rulesVersion && by === buildInfo.version;
}

/** The files of a generation, in the order of writing. All are public: 0644. */
export const generationFiles = ["ca.crt", "host.crt", "node.crt", "config.yml", "node-config.json"] as const;

const keptGenerations = 3;
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
  const target = join(root, name);
  try {
    makeDirectory(root, 0o755);
    mkdirSync(target);
    makePublic(root, target);
    for (const file of generationFiles) {
      const content = files[file];
      if (content !== undefined) writeNewFile(join(target, file), content, 0o644);
    }
    writeNewFile(join(target, "server.yml"), serverYml, 0o644);
    writeNewFile(join(target, "sync.json"), `${JSON.stringify(state)}\n`, 0o644);
    syncDirectory(target);
    syncDirectory(root);
    return name;
  } catch (error) {
    removeTree(target);
    throw fromSystemError(`write a configuration below ${root}`, error);
  }
}

/** One rename makes `name` the current generation. */
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
  for (const each of directories) if (existsSync(each) && !hasMode(each, 0o755)) chmodSync(each, 0o755);
}

/** Completes a switch that a kill interrupted. */
export function finishSwitch(directory: string): void {
  try {
    makePublic(join(directory, "generations"), generationPointer.activeDirectory(directory));
    generationPointer.follow(directory, generationFiles);
  } catch (error) {
    throw fromSystemError(`finish the switch of ${directory}`, error);
  }
}

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

/** The files in force. */
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
  const isThere = (name: number) => existsSync(join(directory, "generations", String(name), appliedMark));
  const found = generations(directory).findLast((name) => name < current && isThere(name));
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
