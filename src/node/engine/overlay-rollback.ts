// Brings the engine back that an installation (overlay-install.ts) has replaced.

import { existsSync, lstatSync, rmSync } from "node:fs";
import { planReplaced } from "../../base/plan/plan-file.ts";
import type { Step } from "../../base/plan/plan.ts";
import type { System } from "../../base/system.ts";
import { defaultPlaces } from "../../brand.ts";
import { keptPath, linkCandidate, planExchange, planKeep, rollBack, swapIn } from "../../release/replace.ts";
import { engineVersion, refuseEngineVersion } from "./engine.ts";
import { installedEngine } from "./engine-trial.ts";
import { isRootsAlone } from "./find-engine.ts";
import type { EngineOutcome, EnginePlaces } from "./overlay-install.ts";
import { isPackagedPlace } from "./overlay-package.ts";

/**
 * Call it before an installation. Returns a function that undoes the installation; that one returns false if nothing was installed,
 * or if it cannot be undone (a package's own file).
 */
export function rememberEngine(
  { overlayBinary: target }: EnginePlaces,
  system: Pick<System, "platform" | "env">,
): () => boolean {
  const inode = () => lstatSync(target, { throwIfNoEntry: false })?.ino;
  /** Undefined: no engine is installed. */
  const before = inode();
  return () => {
    if (inode() === before || isPackagedPlace(target, system)) return false;
    if (before === undefined) rmSync(target);
    else rollBack(target);
    return true;
  };
}

/** Swaps the kept engine and the installed one. If none is kept, the package's own file comes back, as a link to it. */
export async function rollBackEngine(
  places: EnginePlaces,
  { system }: { system: System },
): Promise<EngineOutcome> {
  const target = places.overlayBinary;
  const from = await installedEngine(places, system);
  const packaged = packagedBefore(places, system);
  const kept = packaged ?? keptPath(target);
  if (existsSync(kept)) refuseEngineVersion(await engineVersion(kept, system));
  if (packaged === undefined) rollBack(target);
  else swapIn(linkCandidate(target, packaged), target);
  const to = await engineVersion(target, system);
  return { from: from?.version ?? null, to, source: "rollback", changed: true, path: target };
}

/**
 * The package's engine, if a roll back leads there: the first update from it keeps no file, because the package's file is still in
 * its place.
 */
function packagedBefore(
  { overlayBinary: target, overlayBinaryGiven }: EnginePlaces,
  system: Pick<System, "platform" | "env">,
): string | undefined {
  if (overlayBinaryGiven || !existsSync(target) || existsSync(keptPath(target))) return undefined;
  return defaultPlaces(system.platform, system.env).packagedEngines.find(isRootsAlone);
}

/** The plan of rollBackEngine. */
export function planRollBack(places: EnginePlaces, system: Pick<System, "platform" | "env">): Step[] {
  const target = places.overlayBinary;
  if (packagedBefore(places, system) === undefined) return planExchange(target);
  return [...planKeep(target), planReplaced(target, 0o755)];
}
