// Marks a data directory that had a database. Without the mark, a server whose database is gone would start as a new
// control plane, offer its first-user link to anyone, and refuse its nodes as unknown.

import { closeSync, existsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { brand } from "../../brand.ts";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { createFileFor } from "../../base/files.ts";
import { quoteWord } from "../../base/quote.ts";

const markName = "data.begun";

export const markPath = (dataDirectory: string): string => join(dataDirectory, markName);

export function isBegun(dataDirectory: string): boolean {
  return existsSync(markPath(dataDirectory));
}

/** Call it after the first commit. If a first start is interrupted before that, the next one begins anew. */
export function markBegun(dataDirectory: string): void {
  const path = markPath(dataDirectory);
  if (existsSync(path)) return;
  try {
    closeSync(createFileFor(path, 0o600, statSync(dataDirectory)));
  } catch (error) {
    // Another process was faster. A full disk must not keep a server from its work: the next start writes it.
    if (["EEXIST", "ENOSPC", "EDQUOT", "EROFS"].includes(systemErrorCode(error) ?? "")) return;
    throw fromSystemError(`create ${path}`, error);
  }
}

/** `path`: where the database should be. `how`: the end of "it …". */
export function lostDatabase(path: string, how: string): AppError {
  const mark = markPath(dirname(path));
  return new AppError("bad_configuration", `The database ${path} ${how}, but there was one`, {
    hint: `Put it back, or restore a backup: \`${brand.executable} admin restore FILE --replace\`. To begin a new control plane here, which knows none of the present nodes: rm ${quoteWord(mark)}`,
  });
}
