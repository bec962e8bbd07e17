// The one place that lists the organizations registered on this machine. `status` must start fast: no schemas here, and
// node:fs is loaded while the daemon prepares its answer. Bun's own glob would list no FIFO and no socket.

import { brand } from "../../brand.ts";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { slugPattern } from "../../base/slug.ts";

/**
 * The slugs in alphabetical order; none if the configuration root does not exist. These count:
 *
 * - A directory with an entry node-config.json, even a broken link: the organization is damaged, but not gone.
 * - Anything that is not a directory, with a name that can be a slug: a file, a link, a FIFO.
 * - An organization whose replacement was interrupted between two renames: opening it finishes that (replacement.ts).
 */
export function listOrganizations(configRoot: string): string[] {
  const { lstatSync, readdirSync }: typeof import("node:fs") = require("node:fs");
  const isOrganization = (name: string) =>
    lstatSync(`${configRoot}/${name}/node-config.json`, { throwIfNoEntry: false }) !== undefined;
  try {
    const entries = readdirSync(configRoot, { withFileTypes: true });
    const names = new Set(entries.map(({ name }) => name));
    const interrupted = [...names]
      .map((name) => /^\.(.+)\.replaced$/.exec(name)?.[1] ?? "")
      .filter((slug) => slugPattern.test(slug) && !names.has(slug))
      .filter((slug) => ["pending", "replaced"].some((what) => isOrganization(`.${slug}.${what}`)));
    // Two steps, so that foreign directories in the configuration root are not opened.
    return entries
      .filter(({ name }) => slugPattern.test(name))
      .filter((entry) => !entry.isDirectory() || isOrganization(entry.name))
      .map(({ name }) => name)
      .concat(interrupted)
      .sort();
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return [];
    throw fromSystemError(`read ${configRoot}`, error);
  }
}

/** The error of a command that needs this organization, or any, where it is not registered. Lists those that are: a slug may be mistyped. */
export function notRegistered(configRoot: string, slug?: string): AppError {
  const slugs = listOrganizations(configRoot);
  const others = slugs.length === 0 ? "" : `Registered here: ${slugs.join(", ")}. `;
  const [what, line] =
    slug === undefined
      ? ["organization", `${brand.executable} register`]
      : [`organization "${slug}"`, `${brand.executable} register --org-slug ${quoteWord(slug)} …`];
  return new AppError("not_registered", `No ${what} is registered below ${configRoot}`, {
    hint: `${others}Register this machine with \`${line}\`.`,
  });
}
