// Processor time of processes, and a limit to it: with a share of a core each, servers on a machine with few cores behave
// as with a core each, only slower.

import { dlopen, FFIType } from "bun:ffi";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmdirSync, writeFileSync } from "node:fs";

/** Short, so that a server that waits for its next turn holds its locks briefly. */
const periodUs = 10_000;

const libc = dlopen("libc.so.6", {
  clock_gettime: { args: [FFIType.i32, FFIType.ptr], returns: FFIType.i32 },
});

/** Processor time that these processes have used, in ms. None of one that has ended. */
export function processorMs(pids: readonly number[]): number {
  const time = new BigInt64Array(2);
  let sum = 0;
  for (const pid of pids) {
    // The clock of a process, as clock_getcpuclockid(3) names it.
    if (libc.symbols.clock_gettime((~pid << 3) | 2, time) !== 0) continue;
    sum += Number(time[0]) * 1000 + Number(time[1]) / 1e6;
  }
  return sum;
}

/** How long the main threads of these processes were ready to run, but other programs had the processors, in ms. */
export function queuedMs(pids: readonly number[]): number {
  const waits = pids.map((pid) => Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[1]));
  return waits.reduce((sum, ns) => sum + ns / 1e6, 0);
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
