// Opens an organization again only when one of its files has changed, for loops with a round every few seconds: to read and
// parse all files in each round would cost more than the rest of their work.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileStamp } from "../../base/files.ts";
import type { Organization } from "../files/organizations.ts";
import type { EdgeContext } from "./part.ts";

/** The organization is opened this often even if no file has changed. */
const openEveryMs = 60_000;

type WatchedFiles = {
  /**
   * The organization, opened again, if a file of its directory has changed since it was opened last, or `alsoIfChanged` is another
   * text, or a minute has passed. Undefined: nothing has changed; or the files are damaged or being replaced, and the next call tries
   * again.
   */
  openIfChanged(alsoIfChanged?: string): Organization | undefined;
  /** Makes the next call open the organization again, because the caller could not do its work after this one. */
  retry(): void;
};

export function watchFiles({
  directory,
  open,
  system,
}: Pick<EdgeContext, "directory" | "open"> & {
  system: Pick<EdgeContext["system"], "monotonic">;
}): WatchedFiles {
  /** What the files were when the organization was opened last; undefined: open it at the next call. */
  let stamp: string | undefined;
  let openedAt = 0;
  return {
    openIfChanged(alsoIfChanged = "") {
      const next = `${alsoIfChanged}\n${stampOf(directory)}`;
      const now = system.monotonic();
      if (next === stamp && now - openedAt < openEveryMs) return undefined;
      try {
        const organization = open();
        stamp = next;
        openedAt = now;
        return organization;
      } catch {
        return undefined;
      }
    },
    retry: () => void (stamp = undefined),
  };
}

function stampOf(directory: string): string {
  try {
    return readdirSync(directory)
      .map((name) => `${name} ${fileStamp(join(directory, name))}`)
      .join("\n");
  } catch {
    return "";
  }
}
