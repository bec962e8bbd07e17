// The daemon's command-line arguments that differ from the defaults of its system. A service needs them on its command
// line, because it does not get the environment variables of the installation.

import { defaultPlaces } from "../brand.ts";

export type DaemonPlaces = {
  configRoot: string;
  overlayBinary: string;
  stateDb: string;
  socketPath: string;
  pipeName: string;
  autostart: boolean;
};

/** The machine that makes the plan. The plan may be for a different one. */
export type Machine = { platform: string; env: Record<string, string | undefined>; executable: string };

/** `platform` and `env`: of the system that runs the daemon. */
export function daemonArgs(
  places: DaemonPlaces,
  platform: string,
  env: Record<string, string | undefined> = {},
): string[] {
  const usual = defaultPlaces(platform, env);
  const flagOf = (flag: string, value: string, usualValue: string) =>
    trimSlashes(value, "/\\") === trimSlashes(usualValue, "/\\") ? [] : [flag, value];
  const args = [
    ...flagOf("--config-root", places.configRoot, usual.configRoot),
    ...flagOf("--overlay-binary", places.overlayBinary, usual.overlayBinary),
    ...flagOf("--state-db-path", places.stateDb, usual.stateDb),
    ...(usual.ipcMode === "pipe"
      ? flagOf("--pipe-name", places.pipeName, usual.pipeName)
      : flagOf("--socket-path", places.socketPath, usual.socketPath)),
  ];
  if (places.autostart === usual.autostart) return args;
  return [...args, places.autostart ? "--autostart" : "--no-autostart"];
}

/** Removes trailing slashes, but keeps the root. A regular expression would take quadratic time for many slashes. */
export function trimSlashes(path: string, slashes = "/"): string {
  let end = path.length;
  while (end > 1 && slashes.includes(path.charAt(end - 1))) end -= 1;
  return path.slice(0, end);
}

/** The paths on the system `target`: where they are the defaults of this system, they become its defaults. */
export function placesOn<T extends DaemonPlaces>(
  target: "linux" | "darwin" | "win32",
  places: T,
  system: Machine,
): T & { executable: string } {
  const here = defaultPlaces(system.platform, system.env);
  const there = defaultPlaces(target, system.platform === target ? system.env : {});
  const { executable } = system.platform === target ? system : there;
  const moved = { ...places, executable };
  if (places.autostart === here.autostart) moved.autostart = there.autostart;
  for (const name of ["configRoot", "overlayBinary", "stateDb", "socketPath", "pipeName"] as const) {
    if (places[name] === here[name]) moved[name] = there[name];
  }
  return moved;
}
