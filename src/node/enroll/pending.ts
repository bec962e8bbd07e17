// The pending directory: the private directory of a registration that is not finished, beside the organizations' directories. It
// gets the keys first (pending-keys.ts), then the other files (fill-pending.ts). replacement.ts then puts it in its place.

import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fromSystemError } from "../../base/errors.ts";
import { removeTree, syncDirectory } from "../../base/files.ts";
import type { System } from "../../base/system.ts";
import { makeOwnDirectory, makePrivateDirectory } from "../../platform/own-directory.ts";
import { withLock } from "../files/lock.ts";
import { temporarySibling } from "../files/replacement.ts";

/** Returns true if an earlier run left the directory. It is private, because it will contain the keys. */
export function openPending(pending: string, directory: string): boolean {
  makeOwnDirectory(dirname(directory), 0o755);
  return !makePrivateDirectory(pending);
}

/** Whether an interrupted registration has left keys: the next run goes on with them. */
export function hasPendingKeys(configRoot: string, slug: string): boolean {
  return existsSync(join(temporarySibling(configRoot, slug, "pending"), "host.key"));
}

/** File of the pending directory: what a user confirmed in the browser for these keys. */
export const enrollmentFile = "enrollment.json";

/** The pending directory, with or without keys, for `unregister`, which removes it. Undefined if there is none. */
export function findUnfinished(root: string, slug: string): string | undefined {
  const pending = temporarySibling(root, slug, "pending");
  return existsSync(pending) ? pending : undefined;
}

/** Removes a pending directory with its keys. Throws busy while another process continues it. */
export async function removeUnfinished(
  pending: string,
  command: string,
  system: Pick<System, "sleep">,
): Promise<void> {
  await withLock(pending, command, system, async () => {
    try {
      removeTree(pending);
      syncDirectory(dirname(pending));
    } catch (error) {
      throw fromSystemError(`remove ${pending}`, error);
    }
  });
}
