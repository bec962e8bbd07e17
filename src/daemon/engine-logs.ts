// Keeps an engine's log from filling the disk. The engine keeps the file open, so it is copied and truncated, never
// renamed.

import { closeSync, ftruncateSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Log } from "../log.ts";
import { messageOf } from "../errors.ts";
import { writeNewFile } from "../files.ts";
import { openPlain } from "../open-file.ts";
import { readRange } from "../node/engine/engine-log.ts";

export const maxLogBytes = 5 * 1024 * 1024;

/** `logs/<team>.log` beside the state database. */
export function logPath(stateDirectory: string, slug: string): string {
  return join(stateDirectory, "logs", `${slug}.log`);
}

/**
 * Keeps at most the last `maxBytes` as `<log>.1`, because an engine can write gigabytes between two checks. If the disk is
 * full, truncates the log without a copy.
 */
export function rotateLog(path: string, log: Log, maxBytes = maxLogBytes): boolean {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size <= maxBytes) return false;
  const copy = `${path}.1.tmp`;
  try {
    rmSync(copy, { force: true });
    writeNewFile(copy, readRange(path, size - maxBytes, size), statSync(path).mode & 0o777, undefined, false);
    renameSync(copy, `${path}.1`);
  } catch (error) {
    rmSync(copy, { force: true });
    log.warn("Truncated an engine's log without keeping a copy", { path, reason: messageOf(error) });
  }
  truncate(path);
  return true;
}

function truncate(path: string): void {
  const fd = openPlain(path, "update");
  try {
    ftruncateSync(fd, 0);
  } finally {
    closeSync(fd);
  }
}
