// The directories beside an organization's own: a registration that is being prepared, and the directory that it replaces.
// Where two directories cannot be exchanged, a kill can come between two renames. The next command that opens the
// organization then finishes the replacement, without a network.

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
  const aside = temporarySibling(root, basename(directory), "replaced");
  try {
    chmodSync(pending, 0o755);
    removeTree(aside);
    if (!existsSync(directory)) rename(pending, directory);
    else if (exchange(pending, directory)) {
      // A kill here leaves the former directory as a pending one: the next registration keeps only its keys.
      rename(pending, aside);
    } else {
      rename(directory, aside);
      rename(pending, directory);
    }
    removeFormer(root, directory, aside);
  } catch (error) {
    throw fromSystemError(`put ${directory} in its place`, error);
  }
}

/** How long to wait for a process that is between its two renames; they take less than a millisecond. */
const patienceMs = 1000;

/** Does nothing unless a replacement was interrupted between its renames. */
export function finishReplacement(root: string, slug: string): void {
  const directory = join(root, slug);
  const aside = temporarySibling(root, slug, "replaced");
  for (let waited = 0; !existsSync(directory) && existsSync(aside); waited += 5) {
    // Without a complete new directory the former one comes back.
    const from = [temporarySibling(root, slug, "pending"), aside].find(isComplete);
    if (from === undefined) return;
    try {
      if (finishOnce(from, directory, aside)) return;
    } catch (error) {
      throw fromSystemError(`finish the interrupted registration of ${slug}`, error);
    }
    if (waited >= patienceMs)
      throw new AppError("busy", `Another command is registering ${slug}`, { hint: "Wait until it ends." });
    Bun.sleepSync(5);
  }
}

/** Removes what a killed run left of a replaced or removed directory: it contains keys and a token. */
export function removeTemporarySiblings(root: string, slug: string): void {
  finishReplacement(root, slug);
  for (const left of [temporarySibling(root, slug, "replaced"), temporarySibling(root, slug, "removed")]) {
    try {
      removeTree(left);
    } catch (error) {
      throw fromSystemError(`remove ${left}`, error);
    }
  }
}

/** A directory that is being removed is incomplete: its node-config.json may be gone already. */
function isComplete(directory: string): boolean {
  return ["node-config.json", "credentials.json"].every((name) => existsSync(join(directory, name)));
}

/** False if the process that replaces the directory still runs. */
function finishOnce(from: string, directory: string, aside: string): boolean {
  const lock = tryLock(from);
  if (lock === undefined) return false;
  using _ = defer(() => lock.release());
  if (existsSync(directory)) return true;
  rename(from, directory);
  removeFormer(dirname(directory), directory, aside);
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
  for (const name of readdirSync(directory).filter((each) => each.startsWith("lock")))
    rmSync(join(directory, name), { force: true });
  syncDirectory(root);
  removeTree(former);
}
