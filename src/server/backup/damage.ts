// Finds what is wrong with a file that should be a backup, from its size and the header of SQLite.

import { defer } from "../../base/defer.ts";
import { closeSync, fstatSync, readSync } from "node:fs";
import { beginsTrailer } from "./authentication.ts";
import { openPlain } from "../../base/open-file.ts";

const headerBytes = 100;
const magic = "SQLite format 3\0";
/** Offsets in the header (https://www.sqlite.org/fileformat.html#the_database_header). */
const offsets = { pageBytes: 16, changes: 24, pages: 28, pagesOfChange: 92 };

/** Says the damage, for a sentence; undefined for a whole database. `path`: a file without the proof of its origin. */
export function damageOf(path: string): string | undefined {
  const fd = openPlain(path);
  using _ = defer(() => closeSync(fd));
  const { size } = fstatSync(fd);
  if (size === 0) return "it is empty";
  const header = Buffer.alloc(headerBytes);
  const read = readSync(fd, header, 0, headerBytes, 0);
  const begin = header.toString("latin1", 0, Math.min(read, magic.length));
  if (!magic.startsWith(begin)) return "it is no backup: it does not begin like an SQLite database";
  if (read < headerBytes) return "it is truncated: its header is not complete";
  const written = header.readUInt16BE(offsets.pageBytes);
  // 65,536 does not fit into these two bytes: SQLite writes 1 for it.
  const pageBytes = written === 1 ? 65_536 : written;
  if (pageBytes < 512) return "it is damaged: its header has no size of pages";
  const bytes = pagesOf(header) * pageBytes;
  if (size < bytes) return `it is truncated: ${size} of ${bytes} bytes are there`;
  // SQLite leaves whole pages behind its last one.
  const more = (size - bytes) % pageBytes;
  if (more === 0) return undefined;
  const end = Buffer.alloc(more);
  readSync(fd, end, 0, more, size - more);
  return beginsTrailer(end.toString("latin1"))
    ? "it is truncated: the proof at its end is not complete"
    : `it is damaged: ${more} bytes follow its last page`;
}

/** The count of pages is valid only if the last change wrote it; else 0. */
function pagesOf(header: Buffer): number {
  const isValid = header.readUInt32BE(offsets.changes) === header.readUInt32BE(offsets.pagesOfChange);
  return isValid ? header.readUInt32BE(offsets.pages) : 0;
}
