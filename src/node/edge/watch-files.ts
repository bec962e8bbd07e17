// Notices that a file of an organization changed, for parts that look every few seconds: to read and parse all files each time would
// cost more than the rest of their work.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileStamp } from "../../base/files.ts";
import type { Organization } from "../files/organizations.ts";
import type { EdgeContext } from "./part.ts";

/** The organization is opened this often even if no file has changed. */
const wholeEveryMs = 60_000;

type WatchedFiles = {
  /**
   * The organization, opened again, if a file of its directory has changed since the last call, or `more` differs, or a minute has
   * passed. Undefined: nothing is new; or it is damaged, or being replaced, and the next call tries again.
   */
  look(more?: string): Organization | undefined;
  /** The next look opens it again: what the caller did after this look failed. */
  retry(): void;
};

export function watchFiles({
  directory,
  open,
  system,
}: Pick<EdgeContext, "directory" | "open"> & {
  system: Pick<EdgeContext["system"], "monotonic">;
}): WatchedFiles {
  /** What the files were when it was opened last; undefined: open it at the next look. */
  let stamp: string | undefined;
  let openedAt = 0;
  return {
    look(more = "") {
      const next = `${more}\n${stampOf(directory)}`;
      const now = system.monotonic();
      if (next === stamp && now - openedAt < wholeEveryMs) return undefined;
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
