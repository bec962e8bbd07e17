// Installs an overlay engine from a release, a file or the system's package manager. It is tested (engine-trial.ts) before it replaces
// the installed one, which is kept for a roll back (overlay-rollback.ts). Running engines keep running.

import { defer } from "../../base/defer.ts";
import { closeSync, existsSync, readlinkSync, statSync } from "node:fs";
import { brand } from "../../brand.ts";
import { AppError, fromSystemError } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { Step } from "../../base/plan/plan.ts";
import { planReplaced } from "../../base/plan/plan-file.ts";
import { programName } from "../../platform/engine-archive.ts";
import { findPackageManager } from "../../platform/packages.ts";
import { openProgram } from "../../platform/processes.ts";
import { archiveKind, maxUnpackedBytes, readMember } from "../../release/archive.ts";
import {
  candidatePath,
  linkCandidate,
  planKeep,
  sweepCandidates,
  writeCandidate,
} from "../../release/replace.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import type { System } from "../../base/system.ts";
import { engineVersion } from "./engine.ts";
import { findEngineProcess } from "./engine-process.ts";
import {
  checkVersion,
  configurations,
  installedEngine,
  tryAndSwap,
  type InstalledEngine,
  type TrialOutcome,
  type TrialPlaces,
} from "./engine-trial.ts";
import { installPackagedEngine, isPackagedPlace, requirePackageManager } from "./overlay-package.ts";
import { fetchEngine, findEngineRelease, planEngineRelease, updateVersion } from "./overlay-release.ts";
import { isRootsAlone } from "./find-engine.ts";
import { trustingControlPlanes } from "../files/pinned-authorities.ts";
import { readBytes } from "../../base/open-file.ts";
import { sha256Hex } from "../../base/sha256.ts";

export type EngineRequest = {
  source: "auto" | "release" | "package" | "file";
  version?: string | undefined;
  file?: string | undefined;
  /** The expected hash of the file or archive, in hexadecimal. */
  sha256?: string | undefined;
  releaseUrl?: string | undefined;
  /** An update: if the release channel does not answer, the package must be newer than the installed engine. */
  isUpdate?: boolean;
};

export type EngineOutcome = {
  from: string | null;
  to: string;
  source: "release" | "package" | "file" | "rollback";
  changed: boolean;
  path: string;
  sha256?: string;
};

export type EnginePlaces = TrialPlaces & { stateDb: string };

type EngineDeps = { system: System; log: Log };

/** One installation. `installed`: the engine before it. */
type Task = {
  request: EngineRequest;
  places: EnginePlaces;
  installed: InstalledEngine | undefined;
  deps: EngineDeps;
};

/** Installs the requested engine. After any failure the installed engine is unchanged. */
export async function installEngine(
  request: EngineRequest,
  places: EnginePlaces,
  deps: EngineDeps,
): Promise<EngineOutcome> {
  const source = chooseSource(request);
  sweepCandidates(places.overlayBinary);
  const installed = await installedEngine(places, deps.system);
  const task: Task = { request, places, installed, deps };
  switch (source) {
    case "package":
      return installPackage(task);
    case "file":
      return installBytes("file", readEngineFile(request.file ?? ""), task);
    case "release":
      return installRelease(task);
    // The engine in memory, else a release, else a package.
    case "auto": {
      const deleted = deletedEngine(request, places);
      if (deleted !== undefined) {
        deps.log.info(
          `${places.overlayBinary} is gone, and its engine still runs: restoring the file from memory`,
        );
        return installBytes("file", deleted, task);
      }
      try {
        return await installRelease(task);
      } catch (error) {
        const channelError = permitFallback(error, request);
        const why =
          channelError.code === "control_plane_unreachable" ? "is unreachable" : "has no signed list";
        deps.log.warn(
          `The engine's release channel ${why} (${channelError.message}); trying the system's package manager`,
        );
        return installPackage(task, channelError);
      }
    }
  }
}

/**
 * The content of the engine that an organization still runs although its file was deleted. Undefined if there is none, or if the
 * request names a certain engine.
 */
function deletedEngine(
  { source, version, sha256: sum, releaseUrl }: EngineRequest,
  { overlayBinary: target, configRoot }: TrialPlaces,
): Uint8Array | undefined {
  const isAnyWanted =
    source === "auto" && version === undefined && sum === undefined && releaseUrl === undefined;
  if (!isAnyWanted || existsSync(target)) return undefined;
  for (const config of configurations(configRoot)) {
    const process = findEngineProcess(config);
    const opened = process === undefined ? undefined : openProgram(process.pid);
    if (opened === undefined) continue;
    using _ = defer(() => closeSync(opened.fd));
    if (readlinkSync(opened.path) === `${target} (deleted)`) return readBytes(opened.path, maxUnpackedBytes);
  }
  return undefined;
}

/** Whether the channel names a version that is newer than the installed engine. */
export async function checkEngine(
  request: EngineRequest,
  places: EnginePlaces,
  { system }: EngineDeps,
): Promise<{ from: string | null; to: string; available: boolean }> {
  const installed = await installedEngine(places, system);
  const trusting = trustingControlPlanes(places.configRoot, system);
  const to = await updateVersion(request, places.stateDb, trusting);
  const available = installed === undefined || compareVersions(to, installed.version) > 0;
  return { from: installed?.version ?? null, to, available };
}

/**
 * For `auto`: if our own channel is unreachable, or has no signed list, the system's package manager is tried, whose
 * packages are signed. Returns the failure of the channel. Throws the error if it must stay a failure: an invalid
 * signature, a mirror that fails, or a requested hash, which the package's file does not have.
 */
function permitFallback(error: unknown, request: EngineRequest): AppError {
  if (!(error instanceof AppError) || request.sha256 !== undefined || request.releaseUrl !== undefined)
    throw error;
  const isUnsigned = error.code === "release_unsigned";
  const isUnreachable = error.code === "control_plane_unreachable";
  if (!(isUnsigned || isUnreachable) || findPackageManager() === undefined) throw error;
  return error;
}

/** The error of an update if the channel does not answer and the package is not newer: a newer engine may exist. */
function noNewerEngine(channelError: AppError, installed: InstalledEngine, packaged: string): AppError {
  const what = packaged === installed.version ? "the same version" : `${packaged}, which is older`;
  return new AppError(
    channelError.code,
    `The engine stays ${installed.version}: ${channelError.message}, and the system's package has ${what}`,
    {
      cause: channelError,
      hint:
        `Run this again when this machine reaches the Internet, or name a mirror with --release-url. ` +
        `Or bring the engine's archive here: \`${brand.executable} overlay update --file FILE --sha256 HEX\`.`,
    },
  );
}

async function installRelease(task: Task): Promise<EngineOutcome> {
  const { request, places, installed, deps } = task;
  const system = trustingControlPlanes(places.configRoot, deps.system);
  const release = await findEngineRelease(request, places.stateDb, system);
  const { version } = release;
  if (version !== undefined && version === installed?.version && installed.path === places.overlayBinary) {
    return { from: version, to: version, source: "release", changed: false, path: installed.path };
  }
  if (version !== undefined) checkVersion(version, request.version, installed);
  const content = await fetchEngine(release, { ...deps, system });
  // fetchEngine has compared the hash, which is that of the archive.
  return installBytes("release", content, { ...task, request: { ...request, sha256: undefined } });
}

/** The plan of installEngine. Contacts no server. */
export function planEngine(request: EngineRequest, places: TrialPlaces, system: System): Step[] {
  let source = chooseSource(request);
  const target = places.overlayBinary;
  const steps: Step[] = [];
  const isFromMemory = deletedEngine(request, places) !== undefined;
  if (!isFromMemory && (source === "release" || source === "auto")) {
    try {
      steps.push(...planEngineRelease(request, system));
    } catch (error) {
      if (source === "release") throw error;
      permitFallback(error, request);
      source = "package";
    }
  }
  if (source === "package") {
    const manager = requirePackageManager();
    steps.push(...manager.install.map((argv) => ({ step: "run" as const, argv })));
  }
  steps.push({ step: "run", argv: [candidatePath(target), "-version"] });
  for (const config of configurations(places.configRoot)) {
    steps.push({ step: "run", argv: [candidatePath(target), "-test", "-config", config] });
  }
  steps.push(...planKeep(target));
  if (source === "file") checkSum(readEngineFile(request.file ?? ""), request.sha256);
  if (source !== "package" || !isPackagedPlace(target, system)) steps.push(planReplaced(target, 0o755));
  return steps;
}

/** --file implies the source. */
function chooseSource({ source, file }: EngineRequest): EngineRequest["source"] {
  if (source === "file" && file === undefined) throw new AppError("usage", "--source file needs --file FILE");
  return file !== undefined && source === "auto" ? "file" : source;
}

function readEngineFile(path: string): Uint8Array {
  try {
    const stat = statSync(path);
    if (!stat.isFile()) throw new AppError("failed", `${path} is not a file`);
    if (stat.size > maxUnpackedBytes) throw new AppError("failed", `${path} is too large to be an engine`);
    return readBytes(path, maxUnpackedBytes);
  } catch (error) {
    throw fromSystemError(`read ${path}`, error);
  }
}

/** Returns the SHA-256 in hexadecimal. Throws if it is not the wanted one. */
function checkSum(bytes: Uint8Array, wanted: string | undefined): string {
  const sum = sha256Hex(bytes);
  if (wanted !== undefined && wanted.toLowerCase() !== sum) {
    throw new AppError("failed", `The SHA-256 is ${sum}, not ${wanted}`, { hint: "Nothing was replaced." });
  }
  return sum;
}

/** `bytes`: of the engine, or of an archive with it. */
async function installBytes(
  source: "file" | "release",
  bytes: Uint8Array,
  { request, places, installed, deps }: Task,
): Promise<EngineOutcome> {
  const target = places.overlayBinary;
  const sum = checkSum(bytes, request.sha256);
  deps.log.info(`SHA-256 ${sum}`);
  const name = programName("nebula", deps.system);
  const program = archiveKind(bytes) === undefined ? bytes : readMember(bytes, name);
  const candidate = writeCandidate(target, program);
  const outcome = await tryAndSwap(candidate, request.version, places, installed, deps);
  return { ...outcome, source, sha256: sum };
}

/** `channelError`: why the package takes the place of a release. */
async function installPackage(
  { request, places, installed, deps }: Task,
  channelError?: AppError,
): Promise<EngineOutcome> {
  const { system } = deps;
  const program = await installPackagedEngine(deps);
  const to = await engineVersion(program, system);
  if (request.isUpdate === true && channelError !== undefined && installed !== undefined)
    if (compareVersions(to, installed.version) <= 0) throw noNewerEngine(channelError, installed, to);
  // The configured path is the one of the package, whose manager has replaced the file itself.
  if (isPackagedPlace(places.overlayBinary, system)) {
    return { ...outcomeOf(installed, to, program), source: "package" };
  }
  // By a link, updates of the package take effect. A program that others than root can replace is copied instead.
  const candidate = isRootsAlone(program)
    ? linkCandidate(places.overlayBinary, program)
    : writeCandidate(places.overlayBinary, readEngineFile(program));
  return { ...(await tryAndSwap(candidate, request.version, places, installed, deps)), source: "package" };
}

function outcomeOf(installed: InstalledEngine | undefined, to: string, path: string): TrialOutcome {
  return { from: installed?.version ?? null, to, changed: installed?.version !== to, path };
}
