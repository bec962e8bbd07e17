// A file system in memory for temporary files of tests that call fsync thousands of times.

import { mkdtempSync, readFileSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const mounted = (argv: readonly string[]) =>
  Bun.spawnSync([...argv], { stdout: "ignore", stderr: "ignore" }).exitCode === 0;

/** Mounted until disposal or the end of this process. Undefined if mounting is not possible, such as without root. */
export function mountMemory(): (Disposable & { path: string }) | undefined {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return undefined;
  sweep();
  const path = mkdtempSync(join(tmpdir(), `agent-memory-${process.pid}-`));
  if (!mounted(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", path])) {
    rmdirSync(path);
    return undefined;
  }
  const remove = () => unmount(path);
  process.once("exit", remove);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
    process.once(signal, () => process.exit(130));
  return {
    path,
    [Symbol.dispose]() {
      process.off("exit", remove);
      remove();
    },
  };
}

/** Lazy unmount: a leftover program of a test may have an open file. */
function unmount(path: string): void {
  if (mounted(["umount", "--lazy", path])) rmdirSync(path);
}

/** Mounts of runs that were killed. */
function sweep(): void {
  const mounts = readFileSync("/proc/self/mounts", "utf8");
  for (const [, path = "", pid = ""] of mounts.matchAll(/^tmpfs (\S+\/agent-memory-(\d+)-\S+) /gm)) {
    if (!isAlive(Number(pid))) unmount(path);
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
