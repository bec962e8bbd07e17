// Which services this machine needs for the organizations it is registered with, and their state: the bridge between
// the organizations' directories and the texts of platform/.

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import { readTextIfThere } from "../files.ts";
import type { Change } from "../platform/apply.ts";
import {
  systemdInstallation,
  systemdRemoval,
  unitDirectory,
  unitFiles,
  type SystemdState,
  type Team,
  type UnitPlaces,
} from "../platform/systemd.ts";
import { Mode } from "../protocol.ts";
import type { System } from "../system.ts";
import { findEngine, type EngineSettings } from "./overlay.ts";

export type ServiceSettings = EngineSettings & {
  configRoot: string;
  stateDb: string;
  socketPath: string;
  autostart: boolean;
};

/** systemd is what runs this machine (sd_booted(3)). */
export function hasSystemd(): boolean {
  return existsSync("/run/systemd/system");
}

const TeamFile = v.object({ mode: Mode });

/** The registered organizations and their modes, in order of slug; one whose file is damaged is left out. */
export function readTeams(configRoot: string): Team[] {
  if (!existsSync(configRoot)) return [];
  return readdirSync(configRoot)
    .filter((name) => /^[a-z][a-z0-9-]{0,39}$/.test(name))
    .sort()
    .flatMap((slug) => {
      const text = readTextIfThere(join(configRoot, slug, "node-config.json"));
      const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), TeamFile), text);
      return parsed.success ? [{ slug, mode: parsed.output.mode }] : [];
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

/** Refuses where services of this kind cannot be installed, and says what to do instead. */
export function requireSystemd(system: Pick<System, "platform" | "isRoot">): void {
  if (system.platform !== "linux") throw wrongSystem("install-systemd", system.platform);
  if (!hasSystemd()) {
    throw new AppError("failed", "systemd does not run on this machine", {
      hint: `Run the daemon by hand or from your init: ${brand.executable} --ipc-mode socket`,
    });
  }
  requireRoot(system);
}

export function requireRoot(system: Pick<System, "isRoot">): void {
  if (system.isRoot) return;
  throw new AppError("os_permission", "Services are installed by root", {
    hint: "Run the command with sudo.",
  });
}

/** The error of a command that belongs to another system. */
export function wrongSystem(command: string, platform: string): AppError {
  const names: Record<string, string> = {
    linux: "install-systemd",
    darwin: "install-launchd",
    win32: "install-tap",
  };
  const right = names[platform];
  return new AppError("failed", `${command} does not belong to this system (${platform})`, {
    hint:
      right === undefined ? "There is no such command for it." : `Here it is: ${brand.executable} ${right}`,
  });
}

function unitPlaces(
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env" | "executable">,
): UnitPlaces {
  return {
    executable: system.executable,
    engine: findEngine(settings, system)?.path ?? settings.overlayBinary,
    overlayBinary: settings.overlayBinary,
    configRoot: settings.configRoot,
    stateDb: settings.stateDb,
    socketPath: settings.socketPath,
    autostart: settings.autostart,
  };
}

function systemdState(): SystemdState {
  const found = unitFiles.flatMap((name): [string, string][] => {
    const text = readTextIfThere(join(unitDirectory, name));
    return text === undefined ? [] : [[name, text]];
  });
  const groups = readTextIfThere("/etc/group") ?? "";
  return { group: groups.split("\n").some((line) => line.startsWith(`${brand.id}:`)), files: new Map(found) };
}
