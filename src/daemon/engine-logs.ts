// Keeps an engine's log from filling the disk. The engine holds the file open, so it is copied and emptied in place,
// never renamed under the engine.

import { copyFileSync, renameSync, rmSync, statSync, truncateSync } from "node:fs";
import { join } from "node:path";
import type { Log } from "../log.ts";
import { messageOf } from "../errors.ts";

export const maxLogBytes = 5 * 1024 * 1024;

/** `logs/<team>.log` beside the state database (decisions 7). */
export function logPath(stateDirectory: string, team: string): string {
  return join(stateDirectory, "logs", `${team}.log`);
}

/** One former log is kept as `<log>.1`. On a full disk the copy is given up and the log emptied all the same. */
export function rotateLog(path: string, log: Log, maxBytes = maxLogBytes): boolean {
  if ((statSync(path, { throwIfNoEntry: false })?.size ?? 0) <= maxBytes) return false;
  const copy = `${path}.1.tmp`;
  try {
    copyFileSync(path, copy);
    renameSync(copy, `${path}.1`);
  } catch (error) {
    rmSync(copy, { force: true });
    log.warn("An engine's log could not be kept before it was emptied", { path, reason: messageOf(error) });
  }
  truncateSync(path, 0);
  return true;
}
