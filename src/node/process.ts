// Who a process is: its id alone says nothing, ids are used again. The id together with the time it was started
// names one process of one boot. Nothing here starts or ends a process.

import { readFileSync } from "node:fs";

/** `started` is opaque: two readings of one process are equal, two processes' are not. */
export type ProcessIdentity = { pid: number; started: string };

/** The living process with this id, or undefined. A zombie is dead. */
export function identifyProcess(pid: number): ProcessIdentity | undefined {
  if (!Number.isSafeInteger(pid) || pid <= 0) return undefined;
  const started =
    process.platform === "linux"
      ? linuxStart(pid)
      : process.platform === "win32"
        ? windowsStart(pid)
        : unixStart(pid);
  return started === undefined ? undefined : { pid, started };
}

export function isAlive(identity: ProcessIdentity): boolean {
  return identifyProcess(identity.pid)?.started === identity.started;
}

/** Sends the signal to exactly this process; false if it is gone. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): boolean {
  if (!isAlive(identity)) return false;
  try {
    process.kill(identity.pid, signal);
    return true;
  } catch {
    // It ended between the look and the signal.
    return false;
  }
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

function unixStart(pid: number): string | undefined {
  return spawned(["/bin/ps", "-o", "lstart=", "-p", String(pid)]);
}

function windowsStart(pid: number): string | undefined {
  const script = `(Get-Process -Id ${pid} -ErrorAction Stop).StartTime.ToFileTimeUtc()`;
  const powershell = `${process.env["SystemRoot"] ?? "C:\\Windows"}\\System32\\WindowsPowerShell\\v1.0\\powershell.exe`;
  return spawned([powershell, "-NoProfile", "-NonInteractive", "-Command", script]);
}

function spawned(argv: string[]): string | undefined {
  try {
    const { exitCode, stdout } = Bun.spawnSync(argv, { stderr: "ignore", timeout: 5000 });
    const text = stdout.toString().trim();
    return exitCode === 0 && text !== "" ? text : undefined;
  } catch {
    // A machine without the program cannot tell; nothing is adopted there.
    return undefined;
  }
}
