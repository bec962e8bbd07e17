// Plans the services that commands switch on and off: names for the programs of this machine (`agent names`), and the block that keeps
// packets from leaving by another way than a strict exit (`agent exit`).

import { existsSync } from "node:fs";
import type { System } from "../../base/system.ts";
import type { Change } from "../../platform/machine-changes.ts";
import { requireRootForUnits, unitsServe } from "../../platform/config-root.ts";
import { namesPlaces } from "../../platform/names-places.ts";
import { nftProgram } from "../../platform/nftables.ts";
import { hasSystemd } from "../../platform/service-manager.ts";
import { namesUnit } from "../../platform/systemd/systemd.ts";
import { exitInstallation } from "../../platform/systemd/unit-exit.ts";
import { namesInstallation, namesRemoval, type NamesOptions } from "../../platform/systemd/unit-names.ts";
import { blockFile } from "../files/granted/exits.ts";
import { systemdState, unitPlaces } from "./installed-units.ts";
import type { ServiceSettings } from "./services.ts";

/** The changes that switch names for the programs of this machine on. `search`: also short names. */
export function planNames(
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env" | "executable">,
  options: NamesOptions,
): Change[] {
  // The file that tells the daemon to serve names; undefined where a systemd unit does.
  const { switchPath } = namesPlaces(system, settings.stateDb);
  if (switchPath !== undefined)
    return [{ change: "file", path: switchPath, content: '{"schema":1}\n', mode: 0o644 }];
  // Without systemd, as in the image of a machine, no unit of another configuration root can be in use.
  if (hasSystemd(system)) requireRootForUnits(settings.configRoot);
  return namesInstallation(unitPlaces(settings, system), systemdState(), options);
}

/** The changes that switch these names off. */
export function planNamesRemoval(
  { stateDb }: Pick<ServiceSettings, "stateDb">,
  system: Pick<System, "platform">,
): Change[] {
  const { switchPath } = namesPlaces(system, stateDb);
  if (switchPath === undefined) return namesRemoval(systemdState());
  return existsSync(switchPath) ? [{ change: "remove", path: switchPath }] : [];
}

/**
 * The changes for the unit that blocks other ways than the exit from the boot on. `directory`: of the organization whose exit is
 * strict; undefined: there is none, and the unit is removed.
 */
export function exitBlockChanges(
  directory: string | undefined,
  { configRoot }: Pick<ServiceSettings, "configRoot">,
  system: Pick<System, "platform">,
): Change[] {
  const nft = nftProgram(system);
  // `unitsServe`: the units of this machine run the organizations of this root, and not those of another one.
  if (!hasSystemd(system) || !unitsServe(configRoot) || nft === undefined) return [];
  return exitInstallation(
    directory === undefined ? undefined : { nft, file: blockFile(directory) },
    systemdState(),
  );
}

/** Whether names for the programs of this machine are switched on. */
export function areNamesOn(
  { stateDb }: Pick<ServiceSettings, "stateDb">,
  system: Pick<System, "platform">,
): boolean {
  const { switchPath } = namesPlaces(system, stateDb);
  return switchPath === undefined ? systemdState().files.has(namesUnit) : existsSync(switchPath);
}
