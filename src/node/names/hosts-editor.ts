// Puts the block of names into a hosts file, which belongs to the administrator and to other programs too. The file is
// replaced by one rename, so a kill or a full disk leaves the old or the new file, never a part.

import { closeSync, fstatSync, lstatSync, readdirSync, readSync, rmSync, type BigIntStats } from "node:fs";
import { basename, dirname, join } from "node:path";
import { brand } from "../../brand.ts";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { syncDirectory, writeNewFile } from "../../base/files.ts";
import { rename } from "../../platform/file-system.ts";
import { namesIn, splitHosts, withBlock } from "./hosts-block.ts";
import { openPlain, readText } from "../../base/open-file.ts";

/** Lists of blocked names in hosts files reach some megabytes. */
const maxBytes = 32 * 1024 * 1024;
/** A file that was changed this short a time ago may be half written: editors write in place. */
const quietMs = 900;

/** The lines of the block, given the names that other lines of the file have. */
type LinesFor = (taken: ReadonlySet<string>) => readonly string[];

export type HostsEditor = {
  /**
   * `later`: another program has just changed the file, or is writing it; call again in a second. Throws if the file must
   * not be changed.
   */
  update(lines: LinesFor): "same" | "written" | "later";
  close(): void;
};

/** `owner`: the user that must own the file. */
export function makeHostsEditor(
  path: string,
  { now, owner = 0 }: { now: () => number; owner?: number },
): HostsEditor {
  /**
   * The file that the last call replaced, still open: a program that had opened it may have written to it afterwards. `mark`: of the file
   * at its replacement. `replacedBy`: the text of the new file.
   */
  let former: { fd: number; mark: string; replacedBy: string } | undefined;
  const forget = () => {
    if (former !== undefined) closeSync(former.fd);
    former = undefined;
  };
  /**
   * The text that a program wrote to the former file after its replacement. Undefined if it wrote nothing, or if `current`, the text
   * of the hosts file now, is not the one that replaced the former file.
   */
  const lateText = (current: string) => {
    if (former === undefined || former.replacedBy !== current) return undefined;
    const isUnchanged = markOf(fstatSync(former.fd, { bigint: true })) === former.mark;
    return isUnchanged ? undefined : readAll(former.fd);
  };
  removeLeftovers(path);
  return {
    update(lines) {
      const fd = openHosts(path, owner);
      /** Whether `former` has `fd`, which then stays open. */
      let isKept = false;
      try {
        const found = fstatSync(fd, { bigint: true });
        const age = now() - Number(found.mtimeMs);
        // A time in the future is of a clock that was ahead: do not wait for it.
        if (age >= 0 && age < quietMs) return "later";
        const text = readAll(fd);
        const base = lateText(text) ?? text;
        // An empty file is one that a program is about to write: without this, its entries would be lost.
        if (base === "") return lines(new Set()).length === 0 ? "same" : "later";
        const next = withBlock(base, lines(namesIn(splitHosts(base).rest)));
        if (next === text) {
          forget();
          return "same";
        }
        if (!replace(path, next, found)) return "later";
        forget();
        former = { fd, mark: markOf(found), replacedBy: next };
        isKept = true;
        return "written";
      } finally {
        if (!isKept) closeSync(fd);
      }
    },
    close: forget,
  };
}

/** False if the file is no longer the one that was read. */
function replace(path: string, text: string, found: BigIntStats): boolean {
  const temporary = join(dirname(path), `${temporaryPrefix(path)}${process.pid}.tmp`);
  try {
    rmSync(temporary, { force: true });
    const owner = { uid: Number(found.uid), gid: Number(found.gid) };
    writeNewFile(temporary, Buffer.from(text, "latin1"), Number(found.mode & 0o7777n), { owner });
    const current = lstatSync(path, { bigint: true });
    if (current.ino !== found.ino || current.ctimeNs !== found.ctimeNs) {
      rmSync(temporary, { force: true });
      return false;
    }
    rename(temporary, path);
    syncDirectory(dirname(path));
    return true;
  } catch (error) {
    rmSync(temporary, { force: true });
    if (systemErrorCode(error) === "EBUSY") throw isMountPoint(path);
    throw fromSystemError(`write ${path}`, error);
  }
}

/** Removes what a killed run left. */
function removeLeftovers(path: string): void {
  const prefix = temporaryPrefix(path);
  try {
    for (const name of readdirSync(dirname(path))) {
      if (name.startsWith(prefix)) rmSync(join(dirname(path), name), { force: true });
    }
  } catch (error) {
    throw fromSystemError(`look for unfinished files beside ${path}`, error);
  }
}

const temporaryPrefix = (path: string) => `.${basename(path)}.${brand.id}.`;

/** Throws, with the reason, if the file must not be changed. The caller closes it. */
export function openHosts(path: string, owner: number): number {
  const refuse = (why: string) =>
    new AppError("failed", `Names are not written to ${path}: ${why}`, {
      hint: `\`${brand.executable} names --off\` ends the attempts; hosts.json has the names for other programs.`,
    });
  try {
    const found = lstatSync(path);
    const { uid, nlink, size } = found;
    if (found.isSymbolicLink()) throw refuse("it is a link");
    if (!found.isFile()) throw refuse("it is no file");
    if (uid !== owner) throw refuse(`it belongs to the user ${uid}, not to ${owner === 0 ? "root" : owner}`);
    if (nlink > 1) throw refuse("it has a second name, a hard link");
    if (size > maxBytes) throw refuse(`it has more than ${maxBytes} bytes`);
    if (mountPoints().has(path)) throw isMountPoint(path);
    return openPlain(path);
  } catch (error) {
    throw fromSystemError(`read ${path}`, error);
  }
}

function isMountPoint(path: string): AppError {
  return new AppError("failed", `Names are not written to ${path}: it is a mount point, as in containers`, {
    hint: "Give names to the container when it is started (--add-host), or use the network of the host.",
  });
}

/** The paths at which something is mounted: the fifth field of proc_pid_mountinfo(5), where a blank is \040. Empty without /proc. */
function mountPoints(): Set<string> {
  try {
    const lines = readText("/proc/self/mountinfo").split("\n");
    return new Set(lines.map((line) => (line.split(" ")[4] ?? "").replaceAll("\\040", " ")));
  } catch {
    // A rename onto a mount point fails anyway.
    return new Set();
  }
}

/** Another text means that the file was changed. */
function markOf({ size, mtimeNs }: BigIntStats): string {
  return `${size} ${mtimeNs}`;
}

function readAll(fd: number): string {
  const parts: Buffer[] = [];
  for (let at = 0; at <= maxBytes;) {
    const part = Buffer.alloc(64 * 1024);
    const count = readSync(fd, part, 0, part.length, at);
    if (count === 0) break;
    parts.push(part.subarray(0, count));
    at += count;
  }
  return Buffer.concat(parts).toString("latin1");
}
