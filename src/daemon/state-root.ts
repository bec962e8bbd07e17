// Which config root the state database is about: beside it, a file has the path. `path` is that of the database.

import { join } from "node:path";
import { AppError, messageOf } from "../base/errors.ts";
import { readTextIfThere, writeFileAtomic } from "../base/files.ts";
import type { Log } from "../base/log.ts";
import { quoteWord } from "../base/quote.ts";
import { hasOrganizations, isSameRoot } from "../platform/config-root.ts";

export const stateRootPath = (path: string): string => `${path}.root`;

/**
 * Whether the database is about the organizations of this config root: below another root, an organization of the same name is
 * another node. Databases of earlier versions do not name their root, and count as being about this one.
 */
export function isStateOf(path: string, configRoot: string): boolean {
  const root = stateRoot(path);
  return root === undefined || isSameRoot(root, configRoot);
}

function stateRoot(path: string): string | undefined {
  return readTextIfThere(stateRootPath(path))?.trimEnd();
}

/** Called by the daemon, which holds the lock. Throws conflict if the state is of another root that still has organizations. */
export function claimState(path: string, configRoot: string, log: Pick<Log, "warn">): void {
  const root = stateRoot(path);
  if (root === configRoot) return;
  if (root !== undefined && !isSameRoot(root, configRoot) && hasOrganizations(root)) {
    throw new AppError(
      "conflict",
      `${path} is about the organizations of ${root}, not those of ${configRoot}`,
      {
        hint: `Give the daemon a database of its own: --state-db-path ${quoteWord(join(configRoot, "state.db"))}`,
      },
    );
  }
  try {
    writeFileAtomic(stateRootPath(path), `${configRoot}\n`, 0o644);
  } catch (error) {
    // On a full disk the daemon still runs.
    log.warn("Cannot note whose organizations the state is about", { reason: messageOf(error) });
  }
}
