// What is installed of this program's systemd units, and the paths that units get.

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import { textOrEmpty } from "../../base/files.ts";
import type { System } from "../../base/system.ts";
import type { DaemonPlaces } from "../../platform/daemon-args.ts";
import type { SystemdState } from "../../platform/systemd/installation.ts";
import {
  packagedUnitDirectory,
  placesForSystemd,
  templateUnit,
  unitDirectory,
  unitFiles,
  wantsDirectory,
} from "../../platform/systemd/systemd.ts";
import type { UnitPlaces } from "../../platform/systemd/units.ts";
import { lacksProgram, programOf, readUnit } from "../../platform/systemd/unit-file.ts";
import { findEngine, type EngineSettings } from "../engine/find-engine.ts";

/** The paths for new units. */
export function unitPlaces(
  settings: EngineSettings & DaemonPlaces,
  system: Pick<System, "platform" | "env" | "executable">,
): UnitPlaces {
  const places = placesForSystemd(settings, system);
  // placesForSystemd may name another path, whose file findEngine does not know.
  const isSamePath = places.overlayBinary === settings.overlayBinary;
  const engine = isSamePath ? findEngine(settings, system)?.path : undefined;
  return { ...places, engine: engine ?? places.overlayBinary };
}

/** Installed units that start nothing, because their program was deleted. An engine that is gone is a finding of its own. */
export function unitsWithoutProgram(): { unit: string; program: string }[] {
  const { files, packaged } = systemdState();
  return [...new Map([...packaged, ...files])].flatMap(([unit, text]) =>
    unit !== templateUnit && lacksProgram(text) ? [{ unit, program: programOf(text) ?? "" }] : [],
  );
}

/** What is installed of our units. */
export function systemdState(): SystemdState {
  const unitsIn = (directory: string) =>
    new Map(
      unitFiles.flatMap((name): [string, string][] => {
        const text = readUnit(join(directory, name));
        return text === undefined ? [] : [[name, text]];
      }),
    );
  const groups = textOrEmpty("/etc/group");
  return {
    hasGroup: groups.split("\n").some((line) => line.startsWith(`${brand.id}:`)),
    files: unitsIn(unitDirectory),
    packaged: unitsIn(packagedUnitDirectory),
    enabled: new Set(existsSync(wantsDirectory) ? readdirSync(wantsDirectory) : []),
  };
}
