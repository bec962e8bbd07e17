// Plans the services that run this machine's organizations: units of systemd, a job of launchd, or a task of Windows, as platform/
// defines them. Changes nothing.

import { join } from "node:path";
import { defaultPlaces } from "../../brand.ts";
import { readTextIfThere } from "../../base/files.ts";
import { readPinnedEngine } from "../../engine/pinned-engine.ts";
import type { Change } from "../../platform/machine-changes.ts";
import { requireOwnUnits, requireRootForServices, requireRootForUnits } from "../../platform/config-root.ts";
import {
  launchdInstallation,
  launchdRemoval,
  launchdRestart,
  plistPath,
  rootOfPlist,
} from "../../platform/launchd.ts";
import { hasSystemd, serviceManager } from "../../platform/service-manager.ts";
import {
  namesUnit,
  packagedUnitDirectory,
  systemctlCommand,
  templateUnit,
  unitDirectory,
  type OrganizationMode,
} from "../../platform/systemd/systemd.ts";
import { withEngine } from "../../platform/systemd/units.ts";
import { systemdInstallation, systemdRemoval } from "../../platform/systemd/installation.ts";
import { readUnit } from "../../platform/systemd/unit-file.ts";
import { namesInstallation } from "../../platform/systemd/unit-names.ts";
import { rootOfTask, taskInstallation, taskRemoval, taskRestart } from "../../platform/windows/task.ts";
import type { System } from "../../base/system.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import type { EngineSettings } from "../engine/find-engine.ts";
import { salvageOrganization } from "../files/damaged-organization.ts";
import { systemdState, unitPlaces } from "./installed-units.ts";
import { refuseUnsafe } from "./service-checks.ts";

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
  if (text === undefined || settings.overlayBinary !== (readPinnedEngine() ?? usual.overlayBinary)) return [];
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
