// Reads new lines of a growing engine log, also after a rotation has truncated it. The file is neither kept open nor
// watched: callers poll.

import { defer } from "../../base/defer.ts";
import { closeSync, fstatSync, readSync, statSync } from "node:fs";
import { systemErrorCode } from "../../base/errors.ts";
import { openPlain } from "../../base/open-file.ts";

/** Returns the complete lines since the last call. */
export type LogTail = { read(): string[] };

/** Makes a tail that begins at the present end of the log. */
export type LogSource = () => LogTail;

/** Limit for one read: an engine at level debug can write faster than this program reads. */
const maxReadBytes = 4 * 1024 * 1024;

/** Limit for an unfinished line; the rest of it is dropped. */
const maxRestLength = 256 * 1024;

export function fileLog(path: string): LogSource {
  return () => {
    let position = size(path);
    let rest = "";
    return {
      read() {
        const length = size(path);
        if (length < position) [position, rest] = [0, ""];
        if (length === position) return [];
        const from = Math.max(position, length - maxReadBytes);
        const lines = (rest + readRange(path, from, length).toString()).split("\n");
        position = length;
        rest = (lines.pop() ?? "").slice(0, maxRestLength);
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

/** Empty if the file does not exist. */
export function readRange(path: string, from: number, to: number): Buffer {
  let fd: number;
  try {
    fd = openPlain(path);
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return Buffer.alloc(0);
    throw error;
  }
  using _ = defer(() => closeSync(fd));
  const bytes = Buffer.alloc(Math.max(0, Math.min(to, fstatSync(fd).size) - from));
  return bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, from));
}

/** Beside an engine's log: its last lines before the agent restarted it because it hung. */
export const hangLog = (logPath: string): string => `${logPath}.hang`;
