// Which services this machine needs for the organizations it is registered with, and their state: the bridge between
// the organizations' directories and the texts of platform/.

import { join } from "node:path";
import { brand, defaultPlaces } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { readTextIfThere } from "../../files.ts";
import type { Change } from "../../platform/apply.ts";
import { launchdInstallation, launchdRemoval, launchdRestart, plistPath } from "../../platform/launchd.ts";
import { privilegeHint } from "../../platform/privilege.ts";
import { copyCommand, whyUnsafe } from "../../platform/program-safety.ts";
import { daemonByHand, hasSystemd, serviceManager } from "../../platform/service-manager.ts";
import {
  placesForSystemd,
  systemdInstallation,
  systemdRemoval,
  unitDirectory,
  unitFiles,
  type SystemdState,
  type Team,
  type UnitPlaces,
} from "../../platform/systemd.ts";
import { taskInstallation, taskRestart } from "../../platform/windows-task.ts";
import type { System } from "../../system.ts";
import { listOrganizations } from "../files/organizations.ts";
import { findEngine, type EngineSettings } from "../engine/overlay.ts";
import { readRemains } from "../files/remains.ts";

export type ServiceSettings = EngineSettings & {
  configRoot: string;
  stateDb: string;
  socketPath: string;
  pipeName: string;
  autostart: boolean;
};

/**
 * The registered organizations and their modes, in order of slug. One whose file is damaged keeps its services as far as
 * its mode can still be read.
 */
export function readTeams(configRoot: string): Team[] {
  return listOrganizations(configRoot).flatMap((slug) => {
    const { mode } = readRemains(configRoot, slug);
    return mode === undefined ? [] : [{ slug, mode }];
  });
}

/** What has to be done so that systemd runs these teams. Changes nothing and works on any machine. */
export function planSystemdServices(
  teams: readonly Team[],
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env" | "executable">,
): Change[] {
  return systemdInstallation(teams, unitPlaces(settings, system), systemdState());
}

/** What has to be done so that systemd forgets one team, or, without a slug, the product. */
export function planSystemdRemoval(slug: string | undefined, settings: ServiceSettings): Change[] {
  return systemdRemoval(slug, readTeams(settings.configRoot), systemdState());
}

/** Refuses where systemd cannot be given units, and says what to do instead. */
export function requireSystemd(system: Pick<System, "platform" | "isRoot">): void {
  if (!hasSystemd(system)) {
    throw new AppError("failed", "systemd does not run on this machine", {
      hint: `Run the daemon by hand or from your init: ${daemonByHand(system)}`,
    });
  }
  requireRoot(system);
}

export function requireRoot(system: Pick<System, "platform" | "isRoot">): void {
  if (system.isRoot) return;
  throw new AppError("os_permission", "Services are installed by the machine's administrator", {
    hint: privilegeHint(system),
  });
}

/**
 * Refuses to let a service of root run a program that somebody else can replace, or that the service cannot see. Asked
 * before anything is changed: with such a program no check-in ever runs, and no revocation arrives.
 */
export function requireSafePrograms(
  settings: EngineSettings,
  system: Pick<System, "platform" | "env" | "executable">,
): void {
  refuseUnsafe(system.executable, "executable", system);
  refuseUnsafe(findEngine(settings, system)?.path ?? settings.overlayBinary, "overlayBinary", system);
}

export function refuseUnsafe(
  path: string,
  kind: "executable" | "overlayBinary",
  system: Pick<System, "platform" | "env">,
): void {
  const why = whyUnsafe(path, system);
  if (why === undefined) return;
  const usual = defaultPlaces(system.platform, system.env)[kind];
  const then = kind === "executable" ? "run this command with it" : "leave --overlay-binary out";
  throw new AppError("failed", `A service of root cannot be given ${path}: ${why}`, {
    hint:
      path === usual
        ? "Let root alone write there (chown root, chmod go-w), then run this command again."
        : `Put a copy in a safe place (${copyCommand(path, usual, system)}), then ${then}.`,
  });
}

/** What has to be done so that this system's manager runs these teams. Changes nothing. */
export function planServices(
  teams: readonly Team[],
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env" | "executable">,
): Change[] {
  switch (serviceManager(system)) {
    case "systemd":
      return planSystemdServices(teams, settings, system);
    case "launchd":
      return planLaunchd(settings, system);
    case "task":
      return taskInstallation(settings, system);
    case undefined:
      return [];
  }
}

/** What restarts a daemon that launchd or the task manager runs; systemd has a guard for that. */
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

/** The daemon's job of launchd; works on any machine. */
export function planLaunchd(
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env" | "executable">,
): Change[] {
  return launchdInstallation(settings, system, readTextIfThere(plistPath));
}

export function planLaunchdRemoval(): Change[] {
  return launchdRemoval(readTextIfThere(plistPath));
}

function unitPlaces(
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env" | "executable">,
): UnitPlaces {
  const places = placesForSystemd(settings, system);
  const isHere = places.overlayBinary === settings.overlayBinary;
  const engine = isHere ? findEngine(settings, system)?.path : undefined;
  return { ...places, engine: engine ?? places.overlayBinary };
}

function systemdState(): SystemdState {
  const found = unitFiles.flatMap((name): [string, string][] => {
    const text = readTextIfThere(join(unitDirectory, name));
    return text === undefined ? [] : [[name, text]];
  });
  const groups = readTextIfThere("/etc/group") ?? "";
  return { group: groups.split("\n").some((line) => line.startsWith(`${brand.id}:`)), files: new Map(found) };
}
