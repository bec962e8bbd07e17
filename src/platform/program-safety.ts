// Whether root may run a program, or obey a file: only root must be able to replace it, and a service must see its program.
// Write access to any directory above the program is enough to replace it.

import { lstatSync, readlinkSync, realpathSync, statSync, type Stats } from "node:fs";
import { dirname, resolve, sep, win32 } from "node:path";
import { systemErrorCode } from "../base/system-errors.ts";
import { readTextIfThere } from "../base/files.ts";
import { quoteWord } from "../base/quote.ts";
import { openCLibrary } from "./c-library.ts";
import { hasModes } from "./file-system.ts";
import { isPrivileged } from "./privilege.ts";

type Machine = { platform: string; env: Record<string, string | undefined> };

/** Hidden from our units by ProtectHome= and PrivateTmp=. */
const hiddenPlaces = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];
const maxLinks = 10;

/** A clause with the problem, or undefined. A missing program is judged by its directory. */
export function whyUnsafe(path: string, machine: Machine): string | undefined {
  if (machine.platform === "win32") return whyUnsafeOnWindows(path, machine);
  const paths = linksFrom(path);
  const hidden = machine.platform === "linux" ? paths.find(isHidden) : undefined;
  if (hidden !== undefined) return `services cannot see files below ${topOf(hidden)}`;
  const place = replaceablePlace(paths);
  return place === undefined ? undefined : whyReplaceable(place);
}

/** The command that lets only root replace a program; undefined if the problem is another one. */
export function safeCommand(path: string): string | undefined {
  const place = replaceablePlace(linksFrom(path));
  return place === undefined ? undefined : ownCommand(place);
}

/** The first of these paths, or of the directories above them, that users other than root can change. */
function replaceablePlace(paths: readonly string[]): string | undefined {
  for (const each of paths) {
    for (let place = each; ; place = dirname(place)) {
      if (whyReplaceable(place) !== undefined) return place;
      if (place === dirname(place)) break;
    }
  }
  return undefined;
}

function ownCommand(place: string): string {
  const isRoots = statIfThere(place)?.uid === 0;
  return `${isRoots ? "chmod go-w" : "chown root:"} ${quoteWord(place)}`;
}

/**
 * Why a process of root must not run a file itself, or undefined. Narrower than whyUnsafe: a daemon that is started by hand
 * sees hidden places. Of the directories only the first counts here: a plan and doctor check all.
 */
export function whyForeign(
  path: string,
  isRoot: boolean,
  { platform }: Pick<Machine, "platform">,
): string | undefined {
  if (!isRoot || platform === "win32") return undefined;
  return [path, dirname(path)].map(whyReplaceable).find((why) => why !== undefined);
}

export type Foreign = { path: string; why: string; remedy: string };

/** Why root must not obey a file, or undefined. A link is judged by its targets and their directories. */
export function foreignFile(path: string): Foreign | undefined {
  if (statIfThere(path, lstatSync)?.isSymbolicLink() !== true) return foreignPlace(path);
  const targets = linksFrom(path).slice(1);
  const found = targets
    .flatMap((each) => [each, dirname(each)])
    .map(foreignPlace)
    .find((each) => each !== undefined);
  const own = dirname(resolve(path));
  // What lies in the directory of the link is root's to repair, as the file itself would be.
  if (found === undefined || found.path === own || found.path.startsWith(own + sep)) return found;
  // The link leads out of it, to a file of a user: root replaces the link by a copy, and leaves the file to the user.
  const target = targets.at(-1) ?? path;
  const mode = ((statIfThere(target)?.mode ?? 0) & 0o755).toString(8).padStart(4, "0");
  const copy = `install -m ${mode} ${quoteWord(target)} ${quoteWord(path)}`;
  return { ...found, remedy: statIfThere(target) === undefined ? `rm ${quoteWord(path)}` : copy };
}

/**
 * Like foreignFile, but judges one file or directory alone. In a sticky directory users can change only what they own. Undefined also
 * for a process without root's rights: a foreign file gives its owner no more rights there.
 */
export function foreignPlace(path: string): Foreign | undefined {
  const stat = isPrivileged() && hasModes ? statIfThere(path) : undefined;
  if (stat === undefined) return undefined;
  const why = whyReplaceable(path);
  if (why === undefined || (stat.uid === 0 && stat.isDirectory() && (stat.mode & 0o1000) !== 0))
    return undefined;
  return { path, why, remedy: ownCommand(path) };
}

/** The command that copies the program to the path `usual`. */
export function copyCommand(path: string, usual: string, { platform }: Pick<Machine, "platform">): string {
  return platform === "win32"
    ? `copy "${path}" "${usual}"`
    : `sudo install -m 0755 ${quoteWord(path)} ${quoteWord(usual)}`;
}

/** The path, the target of each link at its end, and the path with all links resolved. */
function linksFrom(path: string): string[] {
  const paths = [resolve(path)];
  for (let at = resolve(path); paths.length <= maxLinks; paths.push(at)) {
    if (statIfThere(at, lstatSync)?.isSymbolicLink() !== true) break;
    at = resolve(dirname(at), readlinkSync(at));
  }
  const there = statIfThere(path) !== undefined;
  return there ? [...paths, realpathSync(path)] : paths;
}

/** Undefined also where a part of the path is no directory, or a link leads to itself. */
function statIfThere(path: string, read: typeof lstatSync | typeof statSync = statSync): Stats | undefined {
  try {
    return read(path, { throwIfNoEntry: false });
  } catch (error) {
    if (["ENOTDIR", "ELOOP"].includes(systemErrorCode(error) ?? "")) return undefined;
    throw error;
  }
}

/** Why services cannot see a file or directory, also one behind a link; undefined if they can. */
export function whyHidden(path: string): string | undefined {
  const hidden = linksFrom(path).find((each) => isHidden(each) || hiddenPlaces.includes(each));
  return hidden === undefined ? undefined : `services cannot see files below ${topOf(hidden)}`;
}

function isHidden(path: string): boolean {
  return hiddenPlaces.some((place) => path.startsWith(`${place}/`));
}

function topOf(path: string): string {
  return hiddenPlaces.find((place) => path.startsWith(`${place}/`)) ?? path;
}

function whyReplaceable(path: string): string | undefined {
  const stat = statIfThere(path);
  if (stat === undefined) return undefined;
  if (stat.uid !== 0) return `${path} belongs to user ${stat.uid}, not to root`;
  if ((stat.mode & 0o002) !== 0) return `every user can write to ${path}`;
  if ((stat.mode & 0o020) === 0) return undefined;
  if (hasMembers(stat.gid)) return `group ${stat.gid} can write to ${path}`;
  const listed = listedWriter(path);
  return listed === undefined ? undefined : `an access control list lets ${listed} write to ${path}`;
}

/**
 * Whether users other than root are in the group. Debian may give /usr/local/bin to the group staff, which is empty. An unlisted
 * group may have members. Some systems give the group root to accounts that nobody signs in with: of it, only the list counts.
 */
function hasMembers(gid: number): boolean {
  const fields = (file: string) => (readTextIfThere(file) ?? "").split("\n").map((line) => line.split(":"));
  const group = fields("/etc/group").find(([, , number]) => number === String(gid));
  const members = (group?.[3] ?? "").split(",").filter((name) => name !== "" && name !== "root");
  if (gid === 0) return members.length > 0;
  if (group === undefined || members.length > 0) return true;
  return fields("/etc/passwd").some(([, , , number]) => number === String(gid));
}

const accessList = { name: "system.posix_acl_access", maxBytes: 65_536, namedUser: 2, namedGroup: 8 };

/**
 * Who else may write by an access control list (acl(5)), or undefined. Its entries count only as far as its mask permits, which
 * the mode shows as rights of the group: so without these, no list has to be read.
 */
function listedWriter(path: string): string | undefined {
  const { name, maxBytes, namedUser, namedGroup } = accessList;
  const bytes = readAttribute(path, name, maxBytes);
  // The kernel's form: the version in four bytes, then entries of eight.
  for (let at = 4; at + 8 <= bytes.byteLength; at += 8) {
    const [tag, permissions] = [bytes.getUint16(at, true), bytes.getUint16(at + 2, true)];
    const id = bytes.getUint32(at + 4, true);
    if ((permissions & 2) === 0) continue;
    if (tag === namedUser && id !== 0) return `user ${id}`;
    if (tag === namedGroup && hasMembers(id)) return `group ${id}`;
  }
  return undefined;
}

/** An extended attribute of a file on Linux; empty if it has none. */
function readAttribute(path: string, name: string, maxBytes: number): DataView {
  const buffer = new Uint8Array(maxBytes);
  if (process.platform !== "linux") return new DataView(buffer.buffer, 0, 0);
  // Loaded on demand, to keep the start of every command fast.
  const { ptr }: typeof import("bun:ffi") = require("bun:ffi");
  try {
    const { getxattr } = openCLibrary({
      getxattr: { args: ["ptr", "ptr", "ptr", "u64"], returns: "i64" },
    });
    // Variables keep the buffers alive during the call.
    const [pathBytes, nameBytes] = [Buffer.from(`${path}\0`), Buffer.from(`${name}\0`)];
    const length = Number(getxattr(ptr(pathBytes), ptr(nameBytes), ptr(buffer), buffer.length));
    return new DataView(buffer.buffer, 0, Math.max(length, 0));
  } catch {
    // Without the C library no daemon starts; then the mode decides.
    return new DataView(buffer.buffer, 0, 0);
  }
}

/** Only administrators can write to the directories for programs. */
function whyUnsafeOnWindows(path: string, { env }: Machine): string | undefined {
  const places = [env["ProgramFiles"] ?? "C:\\Program Files", env["SystemRoot"] ?? "C:\\Windows"];
  const isBelow = (place: string) =>
    win32
      .normalize(path)
      .toLowerCase()
      .startsWith(`${win32.normalize(place).toLowerCase()}\\`);
  return places.some(isBelow)
    ? undefined
    : `other users may be able to replace programs outside ${places[0]}`;
}
