// Keeps an engine's log from filling the disk. The engine holds the file open, so it is copied and emptied in place,
// never renamed under the engine.

import { renameSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Log } from "../log.ts";
import { messageOf } from "../errors.ts";
import { readRange } from "../node/engine/engine-log.ts";

export const maxLogBytes = 5 * 1024 * 1024;

/** `logs/<team>.log` beside the state database (decisions 7). */
export function logPath(stateDirectory: string, team: string): string {
  return join(stateDirectory, "logs", `${team}.log`);
}

/**
 * The end of the former log is kept as `<log>.1`, no more of it than a log may have: an engine may write gigabytes between
 * two looks. On a full disk the copy is given up and the log emptied all the same.
 */
export function rotateLog(path: string, log: Log, maxBytes = maxLogBytes): boolean {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size <= maxBytes) return false;
  const copy = `${path}.1.tmp`;
  try {
    writeFileSync(copy, readRange(path, size - maxBytes, size), { mode: statSync(path).mode & 0o777 });
    renameSync(copy, `${path}.1`);
  } catch (error) {
    rmSync(copy, { force: true });
    log.warn("An engine's log could not be kept before it was emptied", { path, reason: messageOf(error) });
  }
  truncateSync(path, 0);
  return true;
}
