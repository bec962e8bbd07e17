// The overlay engine as a file on this machine: where it is, which version it reports, what is known against that
// version. It does not run or supervise engines.

import { existsSync, realpathSync, statSync } from "node:fs";
import { defaultPlaces } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import type { System } from "../../system.ts";

export type EngineSettings = { overlayBinary: string; overlayBinaryGiven: boolean };

/** `package`: a package manager put the file there and keeps it up to date. */
export type EngineFile = { path: string; source: "installed" | "package" };

/**
 * The engine to use: the configured place, else, unless a person named that place, a root-owned one of the system's
 * package. Relative paths and PATH are never searched (decisions 1).
 */
export function findEngine(
  settings: EngineSettings,
  system: Pick<System, "platform" | "env">,
): EngineFile | undefined {
  const packaged = defaultPlaces(system.platform, system.env).packagedEngines;
  if (existsSync(settings.overlayBinary)) {
    const real = realpathSync(settings.overlayBinary);
    return { path: settings.overlayBinary, source: packaged.includes(real) ? "package" : "installed" };
  }
  if (settings.overlayBinaryGiven) return undefined;
  const path = packaged.find(isRootsAlone);
  return path === undefined ? undefined : { path, source: "package" };
}

/** Like findEngine, but a missing engine is an error that names the way to one. */
export function requireEngine(
  settings: EngineSettings,
  system: Pick<System, "platform" | "env">,
): EngineFile {
  const found = findEngine(settings, system);
  if (found !== undefined) return found;
  throw new AppError("engine_missing", `There is no overlay engine at ${settings.overlayBinary}`, {
    hint: "Install one: agent overlay install",
  });
}

/** Belongs to root, and nobody else can change it. */
export function isRootsAlone(path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat !== undefined && stat.isFile() && stat.uid === 0 && (stat.mode & 0o022) === 0;
}
