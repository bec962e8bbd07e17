// Facts about kernel and memory of this machine that decide what the engine may use.

import { existsSync } from "node:fs";
import { release, totalmem } from "node:os";
import { readText } from "../../base/open-file.ts";

export type Kernel = {
  isLinux: boolean;
  /** "6.1.0-28-amd64" */
  release: string;
  /** Bytes of the machine, or of the container. */
  memory: number;
  /** Bytes of a socket's receive buffer without a setting, as the kernel counts them. */
  usualBuffer: number;
  /** The largest setting of a buffer, bytes, for a process that may not force a larger one. */
  mostBuffer: number;
  /** Whether root may exceed that: only in the first user namespace, which containers may not be in. */
  canForceBuffers: boolean;
};

/** Bytes of a socket's buffer in a Linux where nothing else is set. */
const linuxBuffer = 212_992;

/** Whether the system has capabilities, /dev/net/tun, and a keyring on the session bus. */
export const isLinux = ({ platform }: { platform: string }): boolean => platform === "linux";

export function readKernel(platform: NodeJS.Platform = process.platform): Kernel {
  const number = (path: string) => Number(readProc(path));
  const limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"].map(number);
  return {
    isLinux: isLinux({ platform }),
    release: release(),
    // A group without a limit says `max`, which is no number, and a missing file gives 0.
    memory: Math.min(totalmem(), ...limits.filter((each) => each > 0)),
    usualBuffer: number("/proc/sys/net/core/rmem_default") || linuxBuffer,
    mostBuffer: Math.min(
      number("/proc/sys/net/core/rmem_max") || linuxBuffer,
      number("/proc/sys/net/core/wmem_max") || linuxBuffer,
    ),
    canForceBuffers: /^\s*0\s+0\s+4294967295\s*$/.test(readProc("/proc/self/uid_map")),
  };
}

/** Empty on other systems, and for files that a container hides. */
function readProc(path: string): string {
  try {
    return readText(path);
  } catch {
    return "";
  }
}

/** IFF_VNET_HDR: packets carry a header that describes offloads. */
const vnetHeader = 0x4000;

/** Whether a tunnel's interface takes large packets; undefined if that cannot be seen, or if there is no interface. */
export function hasOffloads(device: string): boolean | undefined {
  const flags = Number(readProc(`/sys/class/net/${device}/tun_flags`).trim() || Number.NaN);
  return Number.isNaN(flags) ? undefined : (flags & vnetHeader) !== 0;
}

const ipPrograms = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"];

/** The program that changes rules and routes (iproute2). Undefined: this machine has none, or is no Linux. */
export function ipProgram(system: { platform: string }): string | undefined {
  return isLinux(system) ? ipPrograms.find((each) => existsSync(each)) : undefined;
}
