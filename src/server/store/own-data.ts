// Whether root may open the files of a data directory that belongs to the user of the service. That user can place links
// there, and a command of root would write where they lead. Called wherever such a file is opened.

import { lstatSync, readdirSync, statSync, type Stats } from "node:fs";
import { dirname, join } from "node:path";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";

/** How the names of all files begin that the control plane keeps in its directory, with what SQLite has beside the database. */
export const ownNames = /^(control\.db|secret\.key|serve\.lock|data\.begun$|tls|archive$)/;
const archiveName = "archive";

/** Throws foreign_files. Call it before the first file of the directory is opened. */
export function refuseForeignData(directory: string): void {
  for (const name of entriesOf(directory).filter((each) => ownNames.test(each)))
    refuseForeignEntry(join(directory, name));
  const archive = join(directory, archiveName);
  for (const name of entriesOf(archive)) refuseForeignEntry(join(archive, name));
}

/**
 * The same for one file or directory; a missing one is allowed. Only root is in danger: other users can open only
 * what they could also write. A link that root made is intended, and only root can make one that belongs to root.
 */
export function refuseForeignEntry(path: string): void {
  if (process.getuid?.() !== 0) return;
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  const owner = statSync(dirname(path)).uid;
  const why = whyForeign(found, owner);
  if (why === undefined) return;
  const remedy =
    found.isSymbolicLink() || found.nlink > 1
      ? "Move it away"
      : `Check it, then run: chown ${owner} ${quoteWord(path)}`;
  throw new AppError("foreign_files", `Cannot open ${path}: ${why}`, {
    hint: `Only root and the user that the control plane runs as may have made it. ${remedy}.`,
  });
}

function whyForeign(found: Stats, owner: number): string | undefined {
  const belongsTo = (...users: number[]) => users.includes(found.uid);
  if (found.isSymbolicLink()) return belongsTo(0) ? undefined : `user ${found.uid} made it a link`;
  if (!belongsTo(0, owner)) return `it belongs to user ${found.uid}, the directory to user ${owner}`;
  // The owner of the directory can make a hard link to a file of root.
  const isLinkToRoots = found.isFile() && found.nlink > 1 && !belongsTo(owner);
  return isLinkToRoots ? "it is a second name of a file elsewhere" : undefined;
}

function entriesOf(directory: string): string[] {
  const found = lstatSync(directory, { throwIfNoEntry: false });
  return found?.isDirectory() === true ? readdirSync(directory) : [];
}
