// Keeps an engine's log from filling the disk. The engine keeps the file open, so it is copied and truncated, never
// renamed. Junk from the network makes an engine write the same error thousands of times a second: of those, the first and
// the last are kept, and so every other line outlasts them.

import { defer } from "../base/defer.ts";
import { closeSync, ftruncateSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Log } from "../base/log.ts";
import { messageOf } from "../base/errors.ts";
import { writeNewFile } from "../base/files.ts";
import { openPlain, readRange } from "../base/open-file.ts";

export const maxLogBytes = 5 * 1024 * 1024;
/** How many of the first lines with one error are kept at a rotation, and how many of the last. */
const keptOfOne = 20;
/** Of a larger log only the end is read: an engine can write gigabytes between two checks. */
const mostRead = 16 * maxLogBytes;
const readAtOnce = 4 * 1024 * 1024;

/** `logs/<slug>.log` beside the state database. */
export function logPath(stateDirectory: string, slug: string): string {
  return join(stateDirectory, "logs", `${slug}.log`);
}

/**
 * Keeps at most the last `maxBytes` as `<log>.1`, of this log and what was there before. If the disk is full, truncates the
 * log without a copy. Returns whether the log was too long.
 */
export function rotateLog(path: string, log: Log, maxBytes = maxLogBytes): boolean {
  const stat = statSync(path, { throwIfNoEntry: false });
  const size = stat?.size ?? 0;
  if (stat === undefined || size <= maxBytes) return false;
  const copy = `${path}.1.tmp`;
  try {
    rmSync(copy, { force: true });
    writeNewFile(copy, endOf(path, size, maxBytes), stat.mode & 0o777, { isLasting: false });
    renameSync(copy, `${path}.1`);
  } catch (error) {
    rmSync(copy, { force: true });
    log.warn("Truncated an engine's log without keeping a copy", { path, reason: messageOf(error) });
  }
  truncate(path);
  return true;
}

/** What is kept: the end of the former copy and of this log, without most of the repeated errors. */
function endOf(path: string, size: number, maxBytes: number): Buffer {
  const former = `${path}.1`;
  const formerSize = statSync(former, { throwIfNoEntry: false })?.size ?? 0;
  const kept = condense(linesOf(path, Math.max(0, size - mostRead), size), maxBytes);
  return Buffer.concat([readRange(former, Math.max(0, formerSize - maxBytes), formerSize), kept]).subarray(
    -maxBytes,
  );
}

/** The lines of a part of a log. As latin1, every byte comes back as it was, also at a place where the part cuts a character. */
function* linesOf(path: string, from: number, to: number): Generator<string> {
  let unfinishedLine = "";
  for (let at = from; at < to; at += readAtOnce) {
    const lines = (
      unfinishedLine + readRange(path, at, Math.min(to, at + readAtOnce)).toString("latin1")
    ).split("\n");
    unfinishedLine = lines.pop() ?? "";
    yield* lines;
  }
  if (unfinishedLine !== "") yield unfinishedLine;
}

/** How many lines one error has, and the last of those beyond the first ones, which are kept in their place. */
type Repeated = { count: number; last: string[] };

/**
 * Keeps the first lines of each error in their place, and the last ones at the end, with the number of those that are left out. Other
 * lines stay. To shift seldom, the first ones are dropped only beyond twice `maxBytes`: the caller cuts the rest.
 */
function condense(lines: Iterable<string>, maxBytes: number): Buffer {
  const kept: string[] = [];
  const errors = new Map<string, Repeated>();
  let bytes = 0;
  for (const line of lines) {
    const error = errorOf(line);
    if (error !== undefined) {
      const repeated = errors.get(error) ?? { count: 0, last: [] };
      errors.set(error, repeated);
      repeated.count += 1;
      if (repeated.count > keptOfOne) {
        repeated.last.push(line);
        if (repeated.last.length > keptOfOne) repeated.last.shift();
        continue;
      }
    }
    bytes += line.length + 1;
    kept.push(line);
    // Keeps only the end: removes the first lines, many at once.
    if (bytes > 2 * maxBytes) for (; bytes > maxBytes;) bytes -= (kept.shift()?.length ?? bytes) + 1;
  }
  const end = [...errors].flatMap(([error, { count, last }]) => {
    const leftOut = count - keptOfOne - last.length;
    return leftOut > 0 ? [`${leftOut} lines with the error "${error}" are left out here`, ...last] : last;
  });
  const all = [...kept, ...end];
  return Buffer.from(all.length === 0 ? "" : `${all.join("\n")}\n`, "latin1");
}

/** The message of a line at level error, in the formats of all engines; undefined for other lines. */
function errorOf(line: string): string | undefined {
  if (!/"?level"?[:=]"?error\b/i.test(line)) return undefined;
  return /"?\bmsg"?[:=]"((?:[^"\\]|\\.)*)"/.exec(line)?.[1];
}

function truncate(path: string): void {
  const fd = openPlain(path, "update");
  using _ = defer(() => closeSync(fd));
  ftruncateSync(fd, 0);
}
