// The desired state of an organization in server mode: a user has stopped it while this file exists. Its unit does not
// start then (platform/systemd/units.ts), at boot neither. Revocation and restore never change the file. For desktop mode the
// daemon keeps the desired state in its database.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { removeTree, syncDirectory, writeFileAtomic } from "../../base/files.ts";

export function stoppedPath(directory: string): string {
  return join(directory, "stopped");
}

export function isStopped(directory: string): boolean {
  return existsSync(stoppedPath(directory));
}

export function markStopped(directory: string): void {
  if (!isStopped(directory)) writeFileAtomic(stoppedPath(directory), "", 0o644);
}

export function unmarkStopped(directory: string): void {
  if (!isStopped(directory)) return;
  removeTree(stoppedPath(directory));
  syncDirectory(directory);
}
