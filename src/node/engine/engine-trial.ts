// Tests a new engine before it replaces the present one: it runs here, its version is allowed, and it accepts the
// configurations in force. Its source does not matter here.

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
import type { EngineSettings } from "./overlay.ts";
import { readBytes } from "../../base/open-file.ts";

export type TrialPlaces = EngineSettings & { configRoot: string };
export type TrialOutcome = { from: string | null; to: string; changed: boolean; path: string };
type TrialDeps = { system: System; log: Log };

/** The engine in use. Undefined in its place: there is none that reports its version. */
export type Present = { path: string; version: string };

/** Tests the candidate and installs it. The candidate file is removed in any case. */
export async function tryAndSwap(
  candidate: string,
  wanted: string | undefined,
  places: TrialPlaces,
  present: Present | undefined,
  deps: TrialDeps,
): Promise<TrialOutcome> {
  const target = places.overlayBinary;
  using _ = defer(() => rmSync(candidate, { force: true }));
  const version = await candidateVersion(candidate, deps.system);
  checkVersion(version, wanted, present);
  // Not for a downgrade: the configuration in force may use what the older engine lacks. The caller fetches one for it after
  // the swap.
  if (present === undefined || compareVersions(version, present.version) >= 0)
    await checkConfigurations(candidate, places, present, deps);
  const isThere = sameFile(candidate, target);
  if (!isThere) swapIn(candidate, target);
  const from = present?.version ?? null;
  // The target may be a link to a package, which the package manager has just updated.
  return { from, to: version, changed: !isThere || from !== version, path: target };
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
  present: Present | undefined,
): void {
  refuseEngineVersion(version);
  if (wanted !== undefined && wanted !== version) {
    throw new AppError("failed", `This engine is ${version}, not ${wanted}`, {
      hint: "Nothing was replaced.",
    });
  }
  if (wanted === undefined && present !== undefined && compareVersions(version, present.version) < 0) {
    throw new AppError("failed", `This engine is ${version}, older than the present ${present.version}`, {
      hint: `Add --version ${version} to downgrade.`,
    });
  }
}

/** The new engine must accept every configuration that the present one accepts. */
async function checkConfigurations(
  candidate: string,
  places: TrialPlaces,
  present: Present | undefined,
  { system, log }: TrialDeps,
): Promise<void> {
  for (const config of configurations(places.configRoot)) {
    if (await accepts(candidate, config, system)) continue;
    const isAccepted = present !== undefined && (await accepts(present.path, config, system));
    if (!isAccepted) {
      log.warn(
        `${present === undefined ? "The new engine does not accept" : "Neither engine accepts"} ${config}`,
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

function sameFile(candidate: string, target: string): boolean {
  if (!existsSync(target)) return false;
  if (lstatSync(candidate).isSymbolicLink() !== lstatSync(target).isSymbolicLink()) return false;
  if (realpathSync(candidate) === realpathSync(target)) return true;
  const [left, right] = [candidate, target].map((path) => statSync(path));
  return (
    left?.size === right?.size &&
    readBytes(candidate, maxUnpackedBytes).equals(readBytes(target, maxUnpackedBytes))
  );
}
