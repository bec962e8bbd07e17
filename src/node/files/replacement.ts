// Puts the directory of a new registration in its place. Beside an organization's directory, `.SLUG.pending` is the registration
// that is being prepared, and `.SLUG.replaced` the directory that it replaces. If the system cannot exchange two directories, a
// kill can come between two renames. The next command that opens the organization then finishes the replacement, without a
// network.

import { defer } from "../../base/defer.ts";
import { chmodSync, existsSync, readdirSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { removeTree, syncDirectory } from "../../base/files.ts";
import { exchangeDirectories } from "../../platform/c-library.ts";
import { lockFile, type FileLock } from "../../platform/file-lock.ts";
import { rename } from "../../platform/file-system.ts";
import { lockPath } from "./lock.ts";

/** `pending`, `replaced`: see above. `removed`: an organization that `unregister` removes. */
export function temporarySibling(
  root: string,
  slug: string,
  what: "pending" | "replaced" | "removed",
): string {
  return join(root, `.${slug}.${what}`);
}

/** The commit point: the complete directory `pending` gets its place. A directory that is there is replaced. */
export function putInPlace(pending: string, directory: string, exchange = exchangeDirectories): void {
  const root = dirname(directory);
  const replaced = temporarySibling(root, basename(directory), "replaced");
  try {
    chmodSync(pending, 0o755);
    removeTree(replaced);
    if (!existsSync(directory)) rename(pending, directory);
    else if (exchange(pending, directory)) {
      // A kill here leaves the former directory as a pending one: the next registration keeps only its keys.
      rename(pending, replaced);
    } else {
      rename(directory, replaced);
      rename(pending, directory);
    }
    removeFormer(root, directory, replaced);
  } catch (error) {
    throw fromSystemError(`put ${directory} in its place`, error);
  }
}

/** How long to wait for a process that is between its two renames; they take less than a millisecond. */
const patienceMs = 1000;
const tryEveryMs = 5;

/** Does nothing unless a replacement was interrupted between its renames. */
export function finishReplacement(root: string, slug: string): void {
  const directory = join(root, slug);
  const replaced = temporarySibling(root, slug, "replaced");
  for (let waited = 0; !existsSync(directory) && existsSync(replaced); waited += tryEveryMs) {
    // The new directory or, if that is not complete, the former one.
    const complete = [temporarySibling(root, slug, "pending"), replaced].find(isComplete);
    if (complete === undefined) return;
    try {
      if (finishOnce(complete, directory, replaced)) return;
    } catch (error) {
      throw fromSystemError(`finish the interrupted registration of ${slug}`, error);
    }
    if (waited >= patienceMs)
      throw new AppError("busy", `Another command is registering ${slug}`, { hint: "Wait until it ends." });
    Bun.sleepSync(tryEveryMs);
  }
}

/** Removes what a killed run left of a replaced or removed directory: it contains keys and a token. */
export function removeTemporarySiblings(root: string, slug: string): void {
  finishReplacement(root, slug);
  for (const path of [temporarySibling(root, slug, "replaced"), temporarySibling(root, slug, "removed")]) {
    try {
      removeTree(path);
    } catch (error) {
      throw fromSystemError(`remove ${path}`, error);
    }
  }
}

/** A directory that is being removed is incomplete: its node-config.json may be gone already. */
function isComplete(directory: string): boolean {
  return ["node-config.json", "credentials.json"].every((name) => existsSync(join(directory, name)));
}

/** False if the process that replaces the directory still runs. */
function finishOnce(complete: string, directory: string, replaced: string): boolean {
  const lock = tryLock(complete);
  if (lock === undefined) return false;
  using _ = defer(() => lock.release());
  if (existsSync(directory)) return true;
  rename(complete, directory);
  removeFormer(dirname(directory), directory, replaced);
  return true;
}

/** Undefined if another process holds it, or has just finished the replacement. */
function tryLock(directory: string): FileLock | undefined {
  try {
    return lockFile(lockPath(directory));
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return undefined;
    throw error;
  }
}

function removeFormer(root: string, directory: string, former: string): void {
  // This also removes the lock of the process that prepared the directory, and files of processes that wait for it.
  for (const name of readdirSync(directory).filter((file) => file.startsWith("lock")))
    rmSync(join(directory, name), { force: true });
  syncDirectory(root);
  removeTree(former);
}
