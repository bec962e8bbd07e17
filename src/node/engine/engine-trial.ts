// Tests a new engine before it replaces the installed one: it must run here, its version must be allowed, and it must accept the
// configurations in force. Where it comes from does not matter here.

import { defer } from "../../base/defer.ts";
import { existsSync, lstatSync, realpathSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import { maxUnpackedBytes } from "../../release/archive.ts";
import { swapIn } from "../../release/replace.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import type { System } from "../../base/system.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { engineVersion, refuseEngineVersion } from "./engine.ts";
import { findEngine, type EngineSettings } from "./find-engine.ts";
import { readBytes } from "../../base/open-file.ts";

export type TrialPlaces = EngineSettings & { configRoot: string };
/** `from`, `to`: versions; null: there was no engine. */
export type TrialOutcome = { from: string | null; to: string; changed: boolean; path: string };
type TrialDeps = { system: System; log: Log };

/** The engine that is installed. Where it is undefined, there is none that reports its version. */
export type InstalledEngine = { path: string; version: string };

/** An engine that cannot report its version counts as missing: this run may be its repair. */
export async function installedEngine(
  places: EngineSettings,
  system: System,
): Promise<InstalledEngine | undefined> {
  const found = findEngine(places, system);
  if (found === undefined) return undefined;
  try {
    return { path: found.path, version: await engineVersion(found.path, system) };
  } catch (error) {
    if (error instanceof AppError) return undefined;
    throw error;
  }
}

/** Tests the candidate and installs it. `wanted`: the requested version. The candidate file is removed in any case. */
export async function tryAndSwap(
  candidate: string,
  wanted: string | undefined,
  places: TrialPlaces,
  installed: InstalledEngine | undefined,
  deps: TrialDeps,
): Promise<TrialOutcome> {
  const target = places.overlayBinary;
  using _ = defer(() => rmSync(candidate, { force: true }));
  const version = await candidateVersion(candidate, deps.system);
  checkVersion(version, wanted, installed);
  // Not for a downgrade: the configuration in force may use what the older engine lacks. After the swap the caller fetches a
  // configuration for it.
  if (installed === undefined || compareVersions(version, installed.version) >= 0)
    await checkConfigurations(candidate, places, installed, deps);
  const isInPlace = sameFile(candidate, target);
  if (!isInPlace) swapIn(candidate, target);
  const from = installed?.version ?? null;
  // The version can change without a swap: the target may be a link to a package's file, which was just updated.
  return { from, to: version, changed: !isInPlace || from !== version, path: target };
}

async function candidateVersion(candidate: string, system: System): Promise<string> {
  try {
    return await engineVersion(candidate, system);
  } catch (error) {
    throw new AppError("engine_failed", "The new engine does not run on this machine, or is not an engine", {
      cause: error,
      hint: "Is it built for this system and processor? Nothing was replaced.",
    });
  }
}

/** Throws unless the version is the requested one, is not refused, and is not lower without an explicit request. */
export function checkVersion(
  version: string,
  wanted: string | undefined,
  installed: InstalledEngine | undefined,
): void {
  refuseEngineVersion(version);
  if (wanted !== undefined && wanted !== version) {
    throw new AppError("failed", `This engine is ${version}, not ${wanted}`, {
      hint: "Nothing was replaced.",
    });
  }
  if (wanted === undefined && installed !== undefined && compareVersions(version, installed.version) < 0) {
    throw new AppError("failed", `This engine is ${version}, older than the present ${installed.version}`, {
      hint: `Add --version ${version} to downgrade.`,
    });
  }
}

/** The new engine must accept every configuration that the installed one accepts. */
async function checkConfigurations(
  candidate: string,
  places: TrialPlaces,
  installed: InstalledEngine | undefined,
  { system, log }: TrialDeps,
): Promise<void> {
  for (const config of configurations(places.configRoot)) {
    if (await accepts(candidate, config, system)) continue;
    const isAccepted = installed !== undefined && (await accepts(installed.path, config, system));
    if (!isAccepted) {
      log.warn(
        `${installed === undefined ? "The new engine does not accept" : "Neither engine accepts"} ${config}`,
      );
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

/** The configurations in force. A damaged organization without one is skipped. */
export function configurations(configRoot: string): string[] {
  return listOrganizations(configRoot)
    .map((slug) => join(configRoot, slug, "config.yml"))
    .filter((path) => existsSync(path));
}

/** Whether the target has this content already, by a file or a link as the candidate is. */
function sameFile(candidate: string, target: string): boolean {
  if (!existsSync(target)) return false;
  if (lstatSync(candidate).isSymbolicLink() !== lstatSync(target).isSymbolicLink()) return false;
  if (realpathSync(candidate) === realpathSync(target)) return true;
  if (statSync(candidate).size !== statSync(target).size) return false;
  return readBytes(candidate, maxUnpackedBytes).equals(readBytes(target, maxUnpackedBytes));
}
