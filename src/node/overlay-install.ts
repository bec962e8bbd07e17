// Puts an overlay engine in its place: from a file or the system's package manager, tried before it replaces the
// present one, which is kept for a roll-back. Running engines are not touched.

import { createHash } from "node:crypto";
import { existsSync, lstatSync, readdirSync, readFileSync, realpathSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { defaultPlaces } from "../brand.ts";
import { AppError, fromSystemError } from "../errors.ts";
import type { Log } from "../log.ts";
import type { Step } from "../plan.ts";
import { findPackageManager } from "../platform/packages.ts";
import { archiveKind, maxUnpackedBytes, readMember } from "../release/archive.ts";
import {
  candidatePath,
  keptPath,
  linkCandidate,
  rollBack,
  swapIn,
  sweepCandidates,
  writeCandidate,
} from "../release/replace.ts";
import { compareVersions } from "../release/version.ts";
import type { System } from "../system.ts";
import { engineVersion, refuseEngineVersion } from "./engine.ts";
import { findEngine, isRootsAlone, type EngineSettings } from "./overlay.ts";

export type EngineRequest = {
  source: "auto" | "release" | "package" | "file";
  version?: string | undefined;
  file?: string | undefined;
  /** Lower-case hex that the file or archive must have. */
  sha256?: string | undefined;
  releaseUrl?: string | undefined;
};

export type EngineOutcome = {
  from: string | null;
  to: string;
  source: "release" | "package" | "file" | "rollback";
  changed: boolean;
  path: string;
  sha256?: string;
};

export type EnginePlaces = EngineSettings & { configRoot: string };

export type EngineDeps = { system: System; log: Log };

/** Installs what the request asks for; the former engine stays in place when anything about the new one is wrong. */
export async function installEngine(
  request: EngineRequest,
  places: EnginePlaces,
  deps: EngineDeps,
): Promise<EngineOutcome> {
  const source = chooseSource(request);
  sweepCandidates(places.overlayBinary);
  const present = await presentEngine(places, deps.system);
  if (source === "package") return installPackage(request, places, present, deps);
  return installBytes(source, readEngineFile(request.file ?? ""), request, places, present, deps);
}

/** What installEngine would do, without asking any server. */
export function planEngine(request: EngineRequest, places: EnginePlaces, system: System): Step[] {
  const source = chooseSource(request);
  const target = places.overlayBinary;
  const steps: Step[] = [];
  if (source === "package") {
    const manager = requirePackageManager();
    steps.push(...manager.install.map((argv) => ({ step: "run" as const, argv })));
  }
  const there = existsSync(target);
  steps.push({ step: "run", argv: [candidatePath(target), "-version"] });
  for (const config of configurations(places.configRoot)) {
    steps.push({ step: "run", argv: [candidatePath(target), "-test", "-config", config] });
  }
  if (there) steps.push(fileStep(keptPath(target), existsSync(keptPath(target))));
  if (source === "file") checkSum(readEngineFile(request.file ?? ""), request.sha256);
  if (source !== "package" || !isPackagedPlace(target, system)) steps.push(fileStep(target, there));
  return steps;
}

/** Puts the kept engine back; the present one is kept in its stead. */
export async function rollBackEngine(places: EnginePlaces, { system }: EngineDeps): Promise<EngineOutcome> {
  const target = places.overlayBinary;
  const from = await presentEngine(places, system);
  const kept = keptPath(target);
  if (existsSync(kept)) refuseEngineVersion(await engineVersion(kept, system));
  rollBack(target);
  const to = await engineVersion(target, system);
  return { from: from?.version ?? null, to, source: "rollback", changed: true, path: target };
}

export function planRollBack(places: EnginePlaces): Step[] {
  return [fileStep(places.overlayBinary, true), fileStep(keptPath(places.overlayBinary), true)];
}

type Present = { path: string; version: string } | undefined;

/** An engine that does not even say its version is as good as none: it may be what is to be repaired. */
async function presentEngine(places: EnginePlaces, system: System): Promise<Present> {
  const found = findEngine(places, system);
  if (found === undefined) return undefined;
  try {
    return { path: found.path, version: await engineVersion(found.path, system) };
  } catch (error) {
    if (error instanceof AppError) return undefined;
    throw error;
  }
}

function chooseSource(request: EngineRequest): "package" | "file" {
  if (request.file !== undefined && request.source !== "package" && request.source !== "release")
    return "file";
  if (request.source === "file") throw new AppError("usage", "--source file needs --file FILE");
  if (request.source === "release") {
    throw new AppError("failed", "The release channel is not part of this build yet", {
      hint: "Use --source package or --source file.",
    });
  }
  return "package";
}

function readEngineFile(path: string): Uint8Array {
  try {
    const stat = statSync(path);
    if (!stat.isFile()) throw new AppError("failed", `${path} is not a file`);
    if (stat.size > maxUnpackedBytes) throw new AppError("failed", `${path} is too large to be an engine`);
    return readFileSync(path);
  } catch (error) {
    throw fromSystemError(`read ${path}`, error);
  }
}

/** The hex SHA-256, which must be the wanted one if there is one. */
function checkSum(bytes: Uint8Array, wanted: string | undefined): string {
  const sum = createHash("sha256").update(bytes).digest("hex");
  if (wanted !== undefined && wanted.toLowerCase() !== sum) {
    throw new AppError("failed", `The SHA-256 is ${sum}, not ${wanted}`, { hint: "Nothing was replaced." });
  }
  return sum;
}

async function installBytes(
  source: "file" | "release",
  bytes: Uint8Array,
  request: EngineRequest,
  places: EnginePlaces,
  present: Present,
  deps: EngineDeps,
): Promise<EngineOutcome> {
  const target = places.overlayBinary;
  const sha256 = checkSum(bytes, request.sha256);
  deps.log.info(`SHA-256 ${sha256}`);
  const name = deps.system.platform === "win32" ? "nebula.exe" : "nebula";
  const program = archiveKind(bytes) === undefined ? bytes : readMember(bytes, name);
  const candidate = writeCandidate(target, program);
  const outcome = await tryAndSwap(candidate, request, places, present, deps);
  return { ...outcome, source, sha256 };
}

async function installPackage(
  request: EngineRequest,
  places: EnginePlaces,
  present: Present,
  deps: EngineDeps,
): Promise<EngineOutcome> {
  const { system, log } = deps;
  const manager = requirePackageManager();
  if (system.isRoot === (manager.name === "brew")) {
    throw new AppError("os_permission", `${manager.name} must ${system.isRoot ? "not " : ""}be run as root`, {
      hint: system.isRoot ? "Use --source release." : "Run the command with sudo.",
    });
  }
  for (const [at, argv] of manager.install.entries()) {
    log.debug(`running ${argv.join(" ")}`);
    const result = await system.run(argv, {
      timeoutMs: 600_000,
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", DEBIAN_FRONTEND: "noninteractive", LC_ALL: "C.UTF-8" },
    });
    if (result.status === 0) continue;
    const reason = (result.stderr.trim() || result.stdout.trim()).split("\n").at(-1) ?? "";
    if (at < manager.install.length - 1)
      log.warn(`${manager.name} could not refresh all its lists: ${reason}`);
    else throw new AppError("failed", `${manager.name} could not install the engine: ${reason}`);
  }
  const program = packagedProgram(manager.name, system);
  if (isPackagedPlace(places.overlayBinary, system)) {
    const to = await engineVersion(program, system);
    return { ...outcomeOf(present, to, program), source: "package" };
  }
  const candidate = isRootsAlone(program)
    ? linkCandidate(places.overlayBinary, program)
    : writeCandidate(places.overlayBinary, readEngineFile(program));
  return { ...(await tryAndSwap(candidate, request, places, present, deps)), source: "package" };
}

function outcomeOf(present: Present, to: string, path: string): Omit<EngineOutcome, "source"> {
  return { from: present?.version ?? null, to, changed: present?.version !== to, path };
}

function requirePackageManager() {
  const manager = findPackageManager();
  if (manager !== undefined) return manager;
  throw new AppError(
    "failed",
    "No package manager that carries the engine was found (apt, dnf, apk, pacman, brew)",
    {
      hint: "Give the engine with --source file --file FILE.",
    },
  );
}

function packagedProgram(manager: string, system: System): string {
  const places = defaultPlaces(system.platform, system.env).packagedEngines;
  const all = manager === "brew" ? ["/opt/homebrew/bin/nebula", ...places] : places;
  const found = all.find((path) => existsSync(path));
  if (found !== undefined) return found;
  throw new AppError("failed", `${manager} installed the engine, but it is not in ${all.join(", ")}`);
}

/** The configured place is the package manager's own file, which nobody else replaces. */
function isPackagedPlace(target: string, system: Pick<System, "platform" | "env">): boolean {
  return defaultPlaces(system.platform, system.env).packagedEngines.includes(target);
}

async function tryAndSwap(
  candidate: string,
  request: EngineRequest,
  places: EnginePlaces,
  present: Present,
  deps: EngineDeps,
): Promise<Omit<EngineOutcome, "source">> {
  const target = places.overlayBinary;
  try {
    const version = await candidateVersion(candidate, deps.system);
    checkVersion(version, request.version, present);
    await checkConfigurations(candidate, places, present, deps);
    if (sameFile(candidate, target)) return { from: version, to: version, changed: false, path: target };
    swapIn(candidate, target);
    return { from: present?.version ?? null, to: version, changed: true, path: target };
  } finally {
    rmSync(candidate, { force: true });
  }
}

async function candidateVersion(candidate: string, system: System): Promise<string> {
  try {
    return await engineVersion(candidate, system);
  } catch (error) {
    throw new AppError("engine_failed", "The new engine does not run on this machine, or is no engine", {
      cause: error,
      hint: "Is it built for this system and processor? Nothing was replaced.",
    });
  }
}

/** The version asked for, none that is refused, and none that is lower unless it was asked for by number. */
function checkVersion(version: string, wanted: string | undefined, present: Present): void {
  refuseEngineVersion(version);
  if (wanted !== undefined && wanted !== version) {
    throw new AppError("failed", `This engine is ${version}, not ${wanted}`, {
      hint: "Nothing was replaced.",
    });
  }
  if (wanted === undefined && present !== undefined && compareVersions(version, present.version) < 0) {
    throw new AppError("failed", `This engine is ${version}, older than the present ${present.version}`, {
      hint: `Add --version ${version} if you want to go back to it.`,
    });
  }
}

/** The new engine must accept every configuration that the present one accepts. */
async function checkConfigurations(
  candidate: string,
  places: EnginePlaces,
  present: Present,
  { system, log }: EngineDeps,
): Promise<void> {
  for (const config of configurations(places.configRoot)) {
    if (await accepts(candidate, config, system)) continue;
    if (present === undefined || !(await accepts(present.path, config, system))) {
      log.warn(`the engine does not accept ${config}`);
      continue;
    }
    throw new AppError(
      "engine_failed",
      `The new engine does not accept ${config}, which the present one does`,
      {
        hint: "Nothing was replaced.",
      },
    );
  }
}

async function accepts(engine: string, config: string, system: System): Promise<boolean> {
  const { status } = await system.run([engine, "-test", "-config", config], { timeoutMs: 20_000 });
  return status === 0;
}

function configurations(configRoot: string): string[] {
  if (!existsSync(configRoot)) return [];
  return readdirSync(configRoot)
    .filter((name) => /^[a-z]/.test(name))
    .map((name) => join(configRoot, name, "config.yml"))
    .filter((path) => existsSync(path));
}

function sameFile(candidate: string, target: string): boolean {
  if (!existsSync(target)) return false;
  if (lstatSync(candidate).isSymbolicLink() !== lstatSync(target).isSymbolicLink()) return false;
  if (realpathSync(candidate) === realpathSync(target)) return true;
  const [left, right] = [candidate, target].map((path) => statSync(path));
  return left?.size === right?.size && readFileSync(candidate).equals(readFileSync(target));
}

function fileStep(path: string, there: boolean): Step {
  return { step: "file", path, mode: "0755", change: there ? "changed" : "created" };
}
