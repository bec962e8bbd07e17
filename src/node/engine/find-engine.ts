// The overlay engine as a file on this machine: its path and its source. Does not run engines.

import { existsSync, realpathSync, statSync } from "node:fs";
import { defaultPlaces } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { isStartedByUnits } from "../../engine/pinned-engine.ts";
import type { System } from "../../base/system.ts";

/** `overlayBinary`: the configured path, or the default one if it was not given. */
export type EngineSettings = { overlayBinary: string; overlayBinaryGiven: boolean };

/** `package`: a package manager installed the file and updates it. */
export type EngineFile = { path: string; source: "installed" | "package" };

/**
 * The engine to use: the file at the configured path. If that path is only the default and has no file: a root-owned
 * engine of a system package. Never searches PATH or relative paths: another user could place an engine there. No package's engine
 * if the services start the file at the configured path, which is gone: the package's engine may be older, and refuse the
 * configurations in force.
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
  if (settings.overlayBinaryGiven || isStartedByUnits(settings.overlayBinary)) return undefined;
  const path = packaged.find(isRootsAlone);
  return path === undefined ? undefined : { path, source: "package" };
}

/** Like findEngine, but throws engine_missing if there is none. */
export function requireEngine(
  settings: EngineSettings,
  system: Pick<System, "platform" | "env">,
): EngineFile {
  const found = findEngine(settings, system);
  if (found !== undefined) return found;
  throw new AppError("engine_missing", `There is no overlay engine at ${settings.overlayBinary}`, {
    hint: "Install one with `agent overlay install`.",
  });
}

/** Whether root owns the file and no other user can write to it. */
export function isRootsAlone(path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat !== undefined && stat.isFile() && stat.uid === 0 && (stat.mode & 0o022) === 0;
}
