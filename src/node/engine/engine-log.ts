// Reads new lines of a growing engine log, also after a rotation has truncated it. The file is neither kept open nor
// watched: callers poll.

import { statSync } from "node:fs";
import { readRange } from "../../base/open-file.ts";

/** Returns the complete lines since the last call. */
export type LogTail = { read(): string[] };

/** Makes a tail that begins at the present end of the log. */
export type LogSource = () => LogTail;

/** Limit for one read: an engine at level debug can write faster than this program reads. If there is more, the older part is skipped. */
const maxReadBytes = 4 * 1024 * 1024;

/** Limit for an unfinished line. A longer one is skipped as a whole. */
const maxRestBytes = 256 * 1024;

/**
 * Bytes before the position that are compared with those that were read: if they differ, the log was truncated, and has grown past
 * the position since.
 */
const markBytes = 64;
const noBytes = Buffer.alloc(0);

export function fileLog(path: string): LogSource {
  return () => {
    let position = size(path);
    let mark = readRange(path, Math.max(0, position - markBytes), position);
    /** The unfinished line, in bytes: its last character may be unfinished, too. */
    let rest = noBytes;
    /** The beginning of the unfinished line was skipped. Its end is skipped, too: redaction would not recognize half a secret. */
    let isCut = false;
    const isTruncated = (length: number) =>
      length < position || !readRange(path, position - mark.length, position).equals(mark);
    return {
      read() {
        const length = size(path);
        if (length === position) return [];
        if (isTruncated(length)) {
          position = 0;
          mark = noBytes;
          rest = noBytes;
          isCut = false;
        }
        const from = Math.max(position, length - maxReadBytes);
        if (from > position) {
          rest = noBytes;
          isCut = true;
        }
        const bytes = readRange(path, from, length);
        position = from + bytes.length;
        mark = Buffer.concat([mark, bytes.subarray(-markBytes)]).subarray(-markBytes);
        const unread = Buffer.concat([rest, bytes]);
        const end = unread.lastIndexOf("\n");
        const lines = end < 0 ? [] : unread.toString("utf8", 0, end).split("\n");
        if (isCut) lines.shift();
        const unfinished = unread.subarray(end + 1);
        isCut = (isCut && end < 0) || unfinished.length > maxRestBytes;
        rest = isCut ? noBytes : Buffer.from(unfinished);
        return lines;
      },
    };
  };
}

/** The last `count` lines of a file; none if there is no file. */
export function lastLines(path: string, count: number): string[] {
  if (count <= 0) return [];
  const length = size(path);
  // Usually the first, small read is enough.
  for (let bytes = 64 * 1024; ; bytes *= 8) {
    const from = Math.max(0, length - Math.min(bytes, maxReadBytes));
    const lines = readRange(path, from, length).toString().split("\n");
    if (lines.at(-1) === "") lines.pop();
    if (lines.length > count || from === 0 || bytes >= maxReadBytes) {
      // Drop an incomplete first line: redaction would not recognize half a secret.
      return lines.slice(from === 0 ? 0 : 1).slice(-count);
    }
  }
}

function size(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
