// Names and places of the product's systemd units, and commands for systemd. units.ts has the texts of the units, installation.ts the
// changes that install them.

import { existsSync } from "node:fs";
import { brand } from "../../brand.ts";
import type { Change } from "../machine-changes.ts";
import { placesOn, type DaemonPlaces, type Machine } from "../daemon-args.ts";

export const unitDirectory = "/etc/systemd/system";
/** The units of a distribution package. A unit of the same name in /etc stands above it. */
export const packagedUnitDirectory = "/usr/lib/systemd/system";
/** The file that systemd reads a unit from: ours in /etc, else that of the package. Undefined: it is not installed. */
export const unitPath = (name: string): string | undefined =>
  [unitDirectory, packagedUnitDirectory].map((each) => `${each}/${name}`).find((path) => existsSync(path));
/** Links to the enabled units of our services. */
export const wantsDirectory = `${unitDirectory}/multi-user.target.wants`;

export type OrganizationMode = { slug: string; mode: "server" | "desktop" };

/** The paths on a machine with systemd, even if this machine has none. */
export const placesForSystemd = <T extends DaemonPlaces>(places: T, system: Machine) =>
  placesOn("linux", places, system);

export const daemonUnit = `${brand.id}.service`;
/** The checks of server mode (`agent check-auth`), and the timer that starts them every minute. */
export const authUnit = `${brand.id}-auth.service`;
export const authTimer = `${brand.id}-auth.timer`;
export const namesUnit = `${brand.id}-names.service`;
/** Only `exit use --strict` installs it (unit-exit.ts). */
export const exitUnit = `${brand.id}-exit.service`;
/** Engines of server mode: the template, and its instance for an organization. */
export const templateUnit = `${brand.id}@.service`;
export const engineUnit = (slug: string): string => `${brand.id}@${slug}.service`;
/** What runs beside such an engine (`agent edge`). */
export const edgeTemplate = `${brand.id}-edge@.service`;
export const edgeUnit = (slug: string): string => `${brand.id}-edge@${slug}.service`;
/** Watches an update. Exists only during one. */
export const guardUnit = `${brand.id}-guard.service`;

/** Sent instead of SIGTERM on a restart: the daemon ends and leaves its engines running. */
export const restartSignal = "SIGUSR2";

/** Removes the names that the service of names keeps in its cache directory. Before systemd 243 the directory stays. */
export const namesCacheRemoval: Change = {
  change: "run",
  argv: systemctlCommand("clean", "--what=cache", namesUnit),
  mayFail: true,
};

/** Whether a unit of ours is enabled at boot, without asking systemd. Its runtime state may differ. */
export function isEnabled(unitName: string): boolean {
  const wants = [
    wantsDirectory,
    `${unitDirectory}/timers.target.wants`,
    `${unitDirectory}/sysinit.target.wants`,
  ];
  return wants.some((directory) => existsSync(`${directory}/${unitName}`));
}

/** All unit files of the product. */
export const unitFiles: readonly string[] = [
  guardUnit,
  templateUnit,
  edgeTemplate,
  authUnit,
  authTimer,
  daemonUnit,
  namesUnit,
  exitUnit,
];

/** A change that runs systemctl. */
export function systemctl(...words: string[]): Change {
  return { change: "run", argv: systemctlCommand(...words) };
}

export function systemctlCommand(...words: string[]): string[] {
  return ["/usr/bin/systemctl", "--no-ask-password", ...words];
}

/**
 * Reads the journal of one unit, messages alone. Without --merge, journalctl reads the kernel's boot id only. In a container
 * systemd may use another one.
 */
export function journalCommand(unit: string, ...flags: string[]): string[] {
  return ["/usr/bin/journalctl", "--quiet", "--merge", "--output=cat", `--unit=${unit}`, ...flags];
}
