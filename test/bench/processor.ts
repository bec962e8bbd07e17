// Processor time of processes, and a limit to it: with a share of a core each, servers on a machine with few cores behave
// as with a core each, only slower.

import { existsSync, mkdirSync, readFileSync, readdirSync, rmdirSync, writeFileSync } from "node:fs";

/** A tick of /proc/PID/stat. */
const tickMs = 10;
/** Short, so that a server that waits for its next turn holds its locks briefly. */
const periodUs = 10_000;

/** Processor time that these processes have used, in ms. */
export function processorMs(pids: readonly number[]): number {
  const ticks = pids.flatMap((pid) => fieldsOf(pid).slice(11, 13).map(Number));
  return tickMs * ticks.reduce((sum, each) => sum + each, 0);
}

/** The processes that this one has started. */
export function childrenOf(parent: number): number[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => Number(fieldsOf(pid)[1]) === parent);
}

/** The fields after the name: state, parent, …; none if the process has ended. */
function fieldsOf(pid: number): string[] {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    return text.slice(text.lastIndexOf(")") + 2).split(" ");
  } catch {
    return [];
  }
}

/** Gives the process `share` of a core until the end, at which it must have ended. */
export function limitProcessor(pid: number, share: number): Disposable {
  const old = "/sys/fs/cgroup/cpu";
  const isOld = existsSync(old);
  const group = `${isOld ? old : "/sys/fs/cgroup"}/bench-${pid}`;
  mkdirSync(group);
  const write = (name: string, value: string) => writeFileSync(`${group}/${name}`, value);
  const quotaUs = String(Math.round(share * periodUs));
  if (isOld) {
    write("cpu.cfs_period_us", String(periodUs));
    write("cpu.cfs_quota_us", quotaUs);
  } else write("cpu.max", `${quotaUs} ${periodUs}`);
  write("cgroup.procs", String(pid));
  return { [Symbol.dispose]: () => rmdirSync(group) };
}
