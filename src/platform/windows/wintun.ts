// Wintun, the library that the overlay engine needs for its network device on Windows: its path and its hash. The
// engine's Windows archives contain it under the same path.

import { posix, win32 } from "node:path";
import { AppError } from "../../base/errors.ts";
import { placesOn, type DaemonPlaces, type Machine } from "../daemon-args.ts";

/** The system that needs it. */
export const windows = "win32";

/** The paths on a Windows machine, even if this is another system. */
export const placesForWintun = <T extends DaemonPlaces>(places: T, system: Machine) =>
  placesOn(windows, places, system);

export const needsWintun = ({ platform }: { platform: string }): boolean => platform === windows;

/** SHA-256 of Wintun 0.14.1 for each processor, unchanged in the engine's source since November 2021. */
const pinned: Readonly<Record<string, { folder: string; sha256: string }>> = {
  x64: { folder: "amd64", sha256: "e5da8447dc2c320edc0fc52fa01885c103de8c118481f683643cacc3220dafce" },
  arm64: { folder: "arm64", sha256: "f7ba89005544be9d85231a9e0d5f23b2d15b3311667e2dad0debd344918a3f80" },
};

export type Wintun = {
  /** Name in the engine's archive. */
  member: string;
  /** Path where the engine loads it. */
  path: string;
  sha256: string;
};

/** The engine loads it from exactly this path below its own directory. */
export function wintunFor(arch: string, overlayBinary: string): Wintun {
  const found = pinned[arch];
  if (found === undefined) throw new AppError("failed", `Wintun does not support the processor ${arch}`);
  const { dirname, join } = overlayBinary.startsWith("/") ? posix : win32;
  const member = `dist/windows/wintun/bin/${found.folder}/wintun.dll`;
  return { member, path: join(dirname(overlayBinary), member), sha256: found.sha256 };
}
