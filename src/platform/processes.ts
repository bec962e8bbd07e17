// What each system tells of a process: when it was started, with which words, where it writes to. The text of a start
// is opaque to everybody else: equal for one process, different for two that had one id after the other.

import { readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { windowsAge, windowsStart } from "./windows.ts";

/** Undefined if no process of this id lives. A zombie is dead. */
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

/** Whether SIGHUP reaches a process: Windows has no such signal. */
export const takesHangUp = ({ platform }: { platform: string }): boolean => platform !== "win32";

const ages: Partial<Record<string, (started: string, nowMs: number) => number>> = {
  linux: linuxAge,
  win32: windowsAge,
};

/** How long a process with this start has lived, in ms; 0 where the system does not tell: the careful choice. */
export function ageSince(started: string): number {
  const age = ages[process.platform]?.(started, Date.now()) ?? unixAge(started, Date.now());
  return Number.isFinite(age) ? Math.max(0, age) : 0;
}

/** proc(5): the name in brackets may hold anything, so fields are counted from the last bracket. */
function linuxStart(pid: number): string | undefined {
  const stat = readProc(`/proc/${pid}/stat`);
  if (stat === undefined) return undefined;
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, ticks] = [fields[0], fields[19]];
  if (ticks === undefined || state === "Z" || state === "X") return undefined;
  return `${bootId()}:${ticks}`;
}

export function unixAge(started: string, nowMs: number): number {
  return nowMs - Date.parse(`${started} UTC`);
}

/** NaN without /proc. Clock ticks are 1/100 s on every Linux that Bun runs on. */
function linuxAge(started: string): number {
  const ticks = Number(started.split(":").at(-1));
  return Number(readProc("/proc/uptime")?.split(" ")[0]) * 1000 - ticks * 10;
}

/**
 * The process of our user, in our network namespace, that runs some program with exactly these words. Not on Windows:
 * there the note that a daemon makes of its engines is all there is.
 */
export function findProcess(words: readonly string[]): number | undefined {
  if (process.platform === "darwin") return unixFind(words);
  if (process.platform !== "linux") return undefined;
  const tail = [...words, ""].join("\0");
  return readdirSync("/proc")
    .map(Number)
    .find((pid) => Number.isInteger(pid) && pid !== process.pid && runsWith(pid, tail));
}

function runsWith(pid: number, tail: string): boolean {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, "utf8");
    if (!words.endsWith(`\0${tail}`) || words.indexOf("\0") !== words.length - tail.length - 1) return false;
    const own = statSync(`/proc/${pid}`).uid === process.getuid?.();
    return own && readlinkSync(`/proc/${pid}/ns/net`) === readlinkSync("/proc/self/ns/net");
  } catch {
    // It ended while we looked, or is none of ours.
    return false;
  }
}

/** The file that a process writes its standard output to; undefined if it is none, or the system does not tell. */
export function outputFileOf(pid: number): string | undefined {
  try {
    const path = readlinkSync(`/proc/${pid}/fd/1`);
    return statSync(path).isFile() ? path : undefined;
  } catch {
    // A pipe, a terminal, or a file that is gone: nothing to read there.
    return undefined;
  }
}

/** Whether a process writes its standard output to this file; true where the system does not tell. */
export function writesTo(pid: number, path: string): boolean {
  if (process.platform !== "linux") return true;
  try {
    const [output, file] = [statSync(`/proc/${pid}/fd/1`), statSync(path)];
    return output.dev === file.dev && output.ino === file.ino;
  } catch {
    return false;
  }
}

function bootId(): string {
  return readProc("/proc/sys/kernel/random/boot_id")?.trim() ?? "";
}

function readProc(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    // Gone, which is an answer.
    return undefined;
  }
}

/**
 * ps(1): "Sat Nov 21 15:42:11 2026". In UTC and English, or a laptop that travels would hold its engines for others.
 */
export function unixStart(pid: number): string | undefined {
  return ps(["-o", "lstart=", "-p", String(pid)]);
}

/** Words are told apart by what they are here: a path may hold spaces, and the program before them too. */
export function unixFind(words: readonly string[]): number | undefined {
  const tail = ` ${words.join(" ")}`;
  const lines = ps(["-axww", "-o", "pid=,uid=,command="])?.split("\n") ?? [];
  for (const line of lines) {
    const [, pid, uid, command = ""] = /^ *(\d+) +(\d+) (.*)$/.exec(line) ?? [];
    const program = command.slice(0, -tail.length);
    const isIt = command.endsWith(tail) && program.startsWith("/") && !/ -/.test(program);
    if (isIt && Number(uid) === process.getuid?.()) return Number(pid);
  }
  return undefined;
}

function ps(words: readonly string[]): string | undefined {
  try {
    const env = { LC_ALL: "C", TZ: "UTC0" };
    const { exitCode, stdout } = Bun.spawnSync(["/bin/ps", ...words], {
      env,
      stderr: "ignore",
      timeout: 5000,
    });
    const text = stdout.toString().trim();
    return exitCode === 0 && text !== "" ? text : undefined;
  } catch {
    // A machine without the program cannot tell; nothing is adopted there.
    return undefined;
  }
}
