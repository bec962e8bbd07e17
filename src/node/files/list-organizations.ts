// The one place that lists the organizations registered on this machine. `status` must start fast, so this file must import
// neither node:fs, which costs a millisecond at start, nor schemas.

import { fromSystemError, systemErrorCode } from "../../errors.ts";
import { slugPattern } from "../../slug.ts";

/**
 * The slugs in alphabetical order; none if the configuration root does not exist. An organization is a directory with an
 * entry node-config.json, even a broken link: then it is damaged, but not gone. So is a file or a link with the name of
 * one. One whose replacement was interrupted between two renames is included: opening it finishes that (replacement.ts).
 */
export function listOrganizations(configRoot: string): string[] {
  const scan = (pattern: string) => [
    ...new Bun.Glob(pattern).scanSync({ cwd: configRoot, onlyFiles: false, dot: true }),
  ];
  const isOrganization = (name: string) =>
    scan(`${asWildcard(name)}/${asWildcard("node-config.json")}`).length > 0 ||
    isThere(`${configRoot}/${name}/node-config.json`);
  try {
    const names = scan("*");
    const directories = new Set(scan("*/"));
    const interrupted = names
      .map((name) => /^\.(.+)\.replaced$/.exec(name)?.[1] ?? "")
      .filter((slug) => slugPattern.test(slug) && !names.includes(slug))
      .filter((slug) => ["pending", "replaced"].some((what) => isOrganization(`.${slug}.${what}`)));
    // Two steps, so that foreign directories in the configuration root are not opened.
    return names
      .filter((name) => slugPattern.test(name))
      .filter((name) => !directories.has(name) || isOrganization(name))
      .concat(interrupted)
      .sort();
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return [];
    throw fromSystemError(`read ${configRoot}`, error);
  }
}

/** Bun's glob lists no FIFO and no socket. Loaded late: few other directories are here. */
function isThere(path: string): boolean {
  const { lstatSync }: typeof import("node:fs") = require("node:fs");
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

/** "[a]cme": for a name without wildcards, Bun's glob follows links and skips broken ones. */
function asWildcard(name: string): string {
  return name.replace(/^./, "[$&]");
}
