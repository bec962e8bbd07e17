// Where the engine of an organization listens with its control API (engine 1.12): each organization has its own socket, in
// a directory that only root can write. Without our own one, all engines of a machine share the engine's default.

import { existsSync } from "node:fs";
import { basename, join } from "node:path";
import { brand } from "../../brand.ts";
import type { Step } from "../../base/plan/plan.ts";
import { makePrivateDirectory } from "../own-directory.ts";
import { sha256Hex } from "../../base/sha256.ts";

/** All that the engine's unit may write of an organization's directory. */
export const socketDirectory = "run";

/** The engine refuses a longer path on every system. */
const longestPath = 103;

/** A Unix socket, or a named pipe that only administrators can create. Undefined if the path is too long for a socket. */
export function controlSocket(
  directory: string,
  platform: NodeJS.Platform = process.platform,
): string | undefined {
  if (platform === "win32") {
    const digest = sha256Hex(directory.toLowerCase()).slice(0, 16);
    return `\\\\.\\pipe\\ProtectedPrefix\\Administrators\\${brand.id}.${basename(directory)}.${digest}`;
  }
  const path = join(directory, socketDirectory, "ctl.sock");
  return Buffer.byteLength(path) <= longestPath ? path : undefined;
}

/** Does nothing if it exists. A named pipe needs no directory. */
export function makeSocketDirectory(directory: string): void {
  if (process.platform !== "win32") makePrivateDirectory(join(directory, socketDirectory));
}

/** The plan of makeSocketDirectory. */
export function planSocketDirectory(directory: string): Step[] {
  const path = join(directory, socketDirectory, "/");
  if (process.platform === "win32" || existsSync(path)) return [];
  return [{ step: "file", path, mode: "0700", change: "created" }];
}
