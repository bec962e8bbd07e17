// Plans the services that this machine needs for its organizations. Connects the organizations' directories with the
// service definitions in platform/.

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { brand, defaultPlaces } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import { pinnedEngine } from "../../engine/pinned-engine.ts";
import type { Change } from "../../platform/apply.ts";
import {
  requireOwnUnits,
  requireRootForServices,
  requireRootForUnits,
  unitsServe,
} from "../../platform/config-root.ts";
import { nftProgram } from "../../platform/nftables.ts";
import {
  launchdInstallation,
  launchdRemoval,
  launchdRestart,
  plistPath,
  rootOfPlist,
} from "../../platform/launchd.ts";
import { namesPlaces } from "../../platform/names-places.ts";
import { privilegeHint } from "../../platform/privilege.ts";
import { copyCommand, whyUnsafe } from "../../platform/program-safety.ts";
import { daemonByHand, hasSystemd, serviceManager } from "../../platform/service-manager.ts";
import {
  namesUnit,
  packagedUnitDirectory,
  placesForSystemd,
  systemctlCommand,
  templateUnit,
  unitDirectory,
  unitFiles,
  withEngine,
  wantsDirectory,
  type OrganizationMode,
  type UnitPlaces,
} from "../../platform/systemd/systemd.ts";
import {
  systemdInstallation,
  systemdRemoval,
  type SystemdState,
} from "../../platform/systemd/installation.ts";
import { lacksProgram, programOf, readUnit } from "../../platform/systemd/unit-file.ts";
import { exitInstallation } from "../../platform/systemd/unit-exit.ts";
import { namesInstallation, namesRemoval, type NamesOptions } from "../../platform/systemd/unit-names.ts";
import { rootOfTask, taskInstallation, taskRemoval, taskRestart } from "../../platform/windows/task.ts";
import type { System } from "../../base/system.ts";
import { blockFile } from "../files/granted/exits.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { findEngine, type EngineSettings } from "../engine/overlay.ts";
import { salvageOrganization } from "../files/damaged-organization.ts";

export type ServiceSettings = EngineSettings & {
  configRoot: string;
  stateDb: string;
  socketPath: string;
  pipeName: string;
  autostart: boolean;
};

/**
 * The registered organizations with their modes, sorted by slug. A damaged organization is included, and so keeps its
 * services, if its mode can still be read.
 */
export function readModes(configRoot: string): OrganizationMode[] {
  return listOrganizations(configRoot).flatMap((slug) => {
    const { mode } = salvageOrganization(configRoot, slug);
    return mode === undefined ? [] : [{ slug, mode }];
  });
}

/** The changes that make systemd run these organizations. Changes nothing and works on any machine. */
export function planSystemdServices(
  organizations: readonly OrganizationMode[],
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env" | "executable">,
  how: { onlyMissing?: boolean } = {},
): Change[] {
  if (hasSystemd(system)) requireRootForUnits(settings.configRoot);
  const state = systemdState();
  const places = unitPlaces(settings, system);
  // `agent names --on` installs the unit of names. Here it is only kept up to date.
  const isNamed = state.files.has(namesUnit) && how.onlyMissing !== true;
  const names = isNamed ? namesInstallation(places, state) : [];
  return [...systemdInstallation(organizations, places, state, how), ...names];
}

/**
 * The changes after which the next start in server mode runs `engine`. Only the program in the unit is replaced, and only
 * if findEngine has chosen it earlier. Empty if the services were installed for another --overlay-binary.
 */
export function planUnitEngine(
  engine: string,
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env">,
): Change[] {
  const usual = defaultPlaces(system.platform, system.env);
  const path = join(unitDirectory, templateUnit);
  const packaged = join(packagedUnitDirectory, templateUnit);
  const text = hasSystemd(system) ? (readUnit(path) ?? readUnit(packaged)) : undefined;
  if (text === undefined || settings.overlayBinary !== (pinnedEngine() ?? usual.overlayBinary)) return [];
  const content = withEngine(text, [settings.overlayBinary, ...usual.packagedEngines], engine);
  if (content === text) return [];
  refuseUnsafe(engine, "overlayBinary", system);
  return [
    { change: "file", path, content, mode: 0o644 },
    { change: "run", argv: systemctlCommand("daemon-reload") },
  ];
}

/** The changes that remove one organization from systemd, or, without a slug, all units. */
export function planSystemdRemoval(slug: string | undefined, settings: ServiceSettings): Change[] {
  requireOwnUnits(settings.configRoot);
  return systemdRemoval(slug, readModes(settings.configRoot), systemdState());
}

/** The changes that switch names for the programs of this machine on. `search`: also short names. */
export function planNames(
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env" | "executable">,
  options: NamesOptions,
): Change[] {
  const { switchPath } = namesPlaces(system, settings.stateDb);
  if (switchPath !== undefined)
    return [{ change: "file", path: switchPath, content: '{"schema":1}\n', mode: 0o644 }];
  if (hasSystemd(system)) requireRootForUnits(settings.configRoot);
  return namesInstallation(unitPlaces(settings, system), systemdState(), options);
}

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

/** Throws if units cannot be installed, with what to do instead. */
export function requireSystemd(system: Pick<System, "platform" | "isRoot">): void {
  if (!hasSystemd(system)) {
    throw new AppError("failed", "systemd does not run on this machine", {
      hint: `Run the daemon by hand or from your init: ${daemonByHand(system)}`,
    });
  }
  requireRoot(system);
}

export function requireRoot(system: Pick<System, "platform" | "isRoot">, what = "install services"): void {
  if (system.isRoot) return;
  throw new AppError("os_permission", `Only root can ${what}`, {
    hint: privilegeHint(system),
  });
}

/**
 * Throws if a service of root would run a program that another user can replace, or if it cannot see the program or the
 * config root, or serves another one. Called before any change: with such a program no check-in runs, and no revocation
 * arrives.
 */
export function requireSafePrograms(
  settings: EngineSettings & { configRoot: string },
  system: Pick<System, "platform" | "env" | "executable">,
): void {
  if (hasSystemd(system)) requireRootForUnits(settings.configRoot);
  refuseUnsafe(system.executable, "executable", system);
  refuseUnsafe(findEngine(settings, system)?.path ?? settings.overlayBinary, "overlayBinary", system);
}

/** Throws if a service of root must not run this program. */
export function refuseUnsafe(
  path: string,
  kind: "executable" | "overlayBinary",
  system: Pick<System, "platform" | "env">,
): void {
  const why = whyUnsafe(path, system);
  if (why === undefined) return;
  const usual = defaultPlaces(system.platform, system.env)[kind];
  const nextStep = kind === "executable" ? "run this command with it" : "leave --overlay-binary out";
  throw new AppError("failed", `A service of root must not run ${path}: ${why}`, {
    hint:
      path === usual
        ? "Allow only root to write there (chown root, chmod go-w), then run this command again."
        : `Put a copy in a safe place (${copyCommand(path, usual, system)}), then ${nextStep}.`,
  });
}

/**
 * The changes that make this system's service manager run these organizations. Changes nothing. `onlyMissing`: unit files
 * that are there stay as they are, because an administrator may have edited them.
 */
export function planServices(
  organizations: readonly OrganizationMode[],
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env" | "executable">,
  how: { onlyMissing?: boolean } = {},
): Change[] {
  switch (serviceManager(system)) {
    case "systemd":
      return planSystemdServices(organizations, settings, system, how);
    case "launchd":
      return planLaunchd(settings, system);
    case "task":
      return planTask(settings, system);
    case undefined:
      return [];
  }
}

/** The changes that restart a daemon of launchd or of the task scheduler. systemd restarts it through its own units. */
export function planRestart(places: { stateDb: string }, system: Pick<System, "platform" | "env">): Change[] {
  switch (serviceManager(system)) {
    case "launchd":
      return launchdRestart(readTextIfThere(plistPath));
    case "task":
      return taskRestart(places, system.env);
    case "systemd":
    case undefined:
      return [];
  }
}

/** The changes that install the daemon's launchd job. Works on any machine. */
export function planLaunchd(
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env" | "executable">,
): Change[] {
  const installed = readTextIfThere(plistPath);
  requireRootForServices(settings.configRoot, rootOfPlist(installed));
  return launchdInstallation(settings, system, installed);
}

export function planLaunchdRemoval({ configRoot }: Pick<ServiceSettings, "configRoot">): Change[] {
  const installed = readTextIfThere(plistPath);
  requireRootForServices(configRoot, rootOfPlist(installed));
  return launchdRemoval(installed);
}

/** The changes that install the daemon's task of Windows. Works on any machine. */
export function planTask(
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env" | "executable">,
): Change[] {
  requireRootForServices(settings.configRoot, rootOfTask(settings, system));
  return taskInstallation(settings, system);
}

export function planTaskRemoval(
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env" | "executable">,
): Change[] {
  requireRootForServices(settings.configRoot, rootOfTask(settings, system));
  return taskRemoval(settings, system);
}

function unitPlaces(
  settings: ServiceSettings,
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
function systemdState(): SystemdState {
  const unitsIn = (directory: string) =>
    new Map(
      unitFiles.flatMap((name): [string, string][] => {
        const text = readUnit(join(directory, name));
        return text === undefined ? [] : [[name, text]];
      }),
    );
  const groups = readTextIfThere("/etc/group") ?? "";
  return {
    group: groups.split("\n").some((line) => line.startsWith(`${brand.id}:`)),
    files: unitsIn(unitDirectory),
    packaged: unitsIn(packagedUnitDirectory),
    enabled: new Set(existsSync(wantsDirectory) ? readdirSync(wantsDirectory) : []),
  };
}
