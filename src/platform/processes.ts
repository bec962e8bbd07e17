// Facts about processes on each system: start time, arguments, output file. Start times are opaque texts: equal for the
// same process, different for two processes that had the same id.

import { defer } from "../base/defer.ts";
import { closeSync, readdirSync, readlinkSync, readSync, statSync } from "node:fs";
import { systemErrorCode } from "../base/system-errors.ts";
import { windowsAge, windowsStart } from "./windows/windows.ts";
import { openPlain, readText } from "../base/open-file.ts";

/** PATH_MAX of Linux. */
const longestPath = 4096;

/** Undefined if no process with this id runs. A zombie counts as ended. */
export function startOf(pid: number): string | undefined {
  switch (process.platform) {
    case "linux":
      return linuxStart(pid);
    case "win32":
      return windowsStart(pid);
    default:
      return unixStart(pid);
  }
}

/** Windows has no SIGHUP. */
export const takesHangUp = ({ platform }: { platform: string }): boolean => platform !== "win32";

/** The age in ms by platform; the others have that of ps. */
const ages: Partial<Record<string, (started: string, nowMs: number) => number>> = {
  linux: linuxAge,
  win32: windowsAge,
};

/** Age in ms of a process with this start time; 0 if unknown. */
export function ageSince(started: string): number {
  const age = ages[process.platform]?.(started, Date.now()) ?? unixAge(started, Date.now());
  return Number.isFinite(age) ? Math.max(0, age) : 0;
}

/**
 * proc(5): the name, field 2 of stat, may contain spaces and brackets, so fields are counted from the last closing bracket: the
 * state is field 3, the start in clock ticks since boot field 22.
 */
function linuxStart(pid: number): string | undefined {
  const stat = readProc(`/proc/${pid}/stat`);
  if (stat === undefined) return undefined;
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, ticks] = [fields[3 - 3], fields[22 - 3]];
  if (ticks === undefined || state === "Z" || state === "X") return undefined;
  return `${bootId()}:${ticks}`;
}

/** The age, ms, by a start time of ps. */
export function unixAge(started: string, nowMs: number): number {
  return nowMs - Date.parse(`${started} UTC`);
}

/** NaN without /proc. Clock ticks are 1/100 s on every Linux that Bun runs on. */
function linuxAge(started: string): number {
  const ticks = Number(started.split(":").at(-1));
  return Number(readProc("/proc/uptime")?.split(" ")[0]) * 1000 - ticks * 10;
}

/**
 * Finds a process of our user, in our network namespace, that runs a program with exactly these arguments. Always
 * undefined on Windows, where a daemon knows its engines only from its own notes.
 */
export function findProcess(args: readonly string[]): number | undefined {
  if (process.platform === "darwin") return unixFind(args);
  if (process.platform !== "linux") return undefined;
  const tail = Buffer.from(["", ...args, ""].join("\0"));
  const line = Buffer.alloc(longestPath + tail.length);
  const threads = kernelThreads();
  return readdirSync("/proc")
    .map(Number)
    .find((pid) => pid > 0 && pid !== process.pid && !threads.has(pid) && runsWith(pid, tail, line));
}

/** The ids of kernel threads, a third or more of /proc. Empty in a container, where process 2 is an ordinary one. */
export function kernelThreads(): ReadonlySet<number> {
  try {
    readlinkSync("/proc/2/exe");
  } catch (error) {
    // ENOENT: it runs no program. EACCES: unknown.
    if (systemErrorCode(error) === "ENOENT")
      return new Set(readProc("/proc/2/task/2/children")?.trim().split(" ").map(Number));
  }
  return new Set();
}

/**
 * `tail`: the arguments as /proc has them, with a zero byte around each. `line` is a buffer for the command lines of hundreds of
 * processes: readBytes would allocate and read twice, which takes 2 to 3 times as long.
 */
function runsWith(pid: number, tail: Buffer, line: Buffer): boolean {
  try {
    const file = openPlain(`/proc/${pid}/cmdline`);
    const program = readAndClose(file, line) - tail.length;
    if (
      program < 0 ||
      line.indexOf(0) !== program ||
      tail.compare(line, program, program + tail.length) !== 0
    )
      return false;
    const isOurs = statSync(`/proc/${pid}`).uid === process.getuid?.();
    return isOurs && readlinkSync(`/proc/${pid}/ns/net`) === readlinkSync("/proc/self/ns/net");
  } catch {
    // The process has ended, or belongs to another user.
    return false;
  }
}

function readAndClose(file: number, into: Buffer): number {
  using _ = defer(() => closeSync(file));
  return readSync(file, into, 0, into.length, 0);
}

/** The file that is the standard output of a process; undefined if it is not a file, or unknown. */
export function outputFileOf(pid: number): string | undefined {
  try {
    const path = readlinkSync(`/proc/${pid}/fd/1`);
    return statSync(path).isFile() ? path : undefined;
  } catch {
    // A pipe, a terminal, or a deleted file.
    return undefined;
  }
}

/**
 * Opens the program that a process runs, also one whose file was replaced or deleted. `path` names the open file, so that
 * it can be run. Undefined if it may not be read: Linux permits that only with all capabilities of the process.
 */
export function openProgram(pid: number): { fd: number; path: string } | undefined {
  if (process.platform !== "linux") return undefined;
  try {
    const fd = openPlain(`/proc/${pid}/exe`);
    return { fd, path: `/proc/${process.pid}/fd/${fd}` };
  } catch {
    // The process has ended, or has more rights than this one.
    return undefined;
  }
}

/** Whether a process runs the file that is at this path now, not one that was replaced or deleted. */
export function runsProgram(pid: number, path: string): boolean {
  try {
    const [program, file] = [statSync(`/proc/${pid}/exe`), statSync(path)];
    return program.dev === file.dev && program.ino === file.ino;
  } catch {
    // The process has ended, or has more rights than this one.
    return false;
  }
}

/** Whether this file is the standard output of a process. Only Linux tells: elsewhere the answer is always true. */
export function writesTo(pid: number, path: string): boolean {
  if (process.platform !== "linux") return true;
  try {
    const [output, file] = [statSync(`/proc/${pid}/fd/1`), statSync(path)];
    return output.dev === file.dev && output.ino === file.ino;
  } catch {
    // The process or the file is gone, or the process has more rights than this one.
    return false;
  }
}

function bootId(): string {
  return readProc("/proc/sys/kernel/random/boot_id")?.trim() ?? "";
}

function readProc(path: string): string | undefined {
  try {
    return readText(path);
  } catch {
    // The process has ended.
    return undefined;
  }
}

/** ps(1): "Sat Nov 21 15:42:11 2026", in UTC and English: a change of the time zone must not change the text. */
export function unixStart(pid: number): string | undefined {
  return ps(["-o", "lstart=", "-p", String(pid)]);
}

/** ps joins arguments with spaces, and paths may contain spaces: compare the end of the line with the whole text. */
export function unixFind(args: readonly string[]): number | undefined {
  const tail = ` ${args.join(" ")}`;
  const lines = ps(["-axww", "-o", "pid=,uid=,command="])?.split("\n") ?? [];
  for (const line of lines) {
    const [, pid, uid, command = ""] = /^ *(\d+) +(\d+) (.*)$/.exec(line) ?? [];
    const program = command.slice(0, -tail.length);
    // Before the arguments there must be the path of a program, which may contain spaces. With options it is a wrapper, such as sudo.
    const isProgram = program.startsWith("/") && !/ -/.test(program);
    if (isProgram && command.endsWith(tail) && Number(uid) === process.getuid?.()) return Number(pid);
  }
  return undefined;
}

function ps(args: readonly string[]): string | undefined {
  try {
    const env = { LC_ALL: "C", TZ: "UTC0" };
    const { exitCode, stdout } = Bun.spawnSync(["/bin/ps", ...args], {
      env,
      stderr: "ignore",
      timeout: 5000,
    });
    const text = stdout.toString().trim();
    return exitCode === 0 && text !== "" ? text : undefined;
  } catch {
    // Without ps, no running engine is taken over.
    return undefined;
  }
}
