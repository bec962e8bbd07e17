// The words of a daemon's command line that differ from the defaults of its system: what starts it at boot has nothing
// of the environment in which it was installed.

import { defaultPlaces } from "../brand.ts";

export type DaemonPlaces = {
  configRoot: string;
  overlayBinary: string;
  stateDb: string;
  socketPath: string;
  pipeName: string;
  autostart: boolean;
};

/** The machine that plans, which may be another than the one that is planned for. */
export type Machine = { platform: string; env: Record<string, string | undefined>; executable: string };

export function daemonWords(
  places: DaemonPlaces,
  platform: string,
  env: Record<string, string | undefined> = {},
): string[] {
  const usual = defaultPlaces(platform, env);
  const given: [string, string, string][] = [
    ["config-root", places.configRoot, usual.configRoot],
    ["overlay-binary", places.overlayBinary, usual.overlayBinary],
    ["state-db-path", places.stateDb, usual.stateDb],
    usual.ipcMode === "pipe"
      ? ["pipe-name", places.pipeName, usual.pipeName]
      : ["socket-path", places.socketPath, usual.socketPath],
  ];
  const words = given
    .filter(([, value, other]) => trimSlash(value) !== trimSlash(other))
    .flatMap(([name, value]) => [`--${name}`, value]);
  if (places.autostart === usual.autostart) return words;
  return [...words, places.autostart ? "--autostart" : "--no-autostart"];
}

function trimSlash(path: string): string {
  return path.replace(/(?<=.)[\\/]+$/, "");
}

/**
 * The places as another system has them: what nobody has named stands where it stands there, and so does our
 * executable.
 */
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
