// Finds the process that uses a UDP port, from /proc. Linux only. Only root sees the processes of other users.

import { readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { readText } from "../../base/open-file.ts";

export type Holder = { pid: number; name: string };

/** Undefined if no process is found, or none is visible. */
export function holderOf(port: number, family: "ipv4" | "ipv6"): Holder | undefined {
  if (process.platform !== "linux") return undefined;
  // An IPv6 socket also occupies the port for IPv4, unless it is IPv6-only.
  const tables = family === "ipv4" ? ["udp", "udp6"] : ["udp6"];
  const sockets = new Set(tables.flatMap((table) => socketsOn(port, table)));
  if (sockets.size === 0) return undefined;
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (Number.isInteger(pid) && hasOpen(pid, sockets)) return { pid, name: commandName(pid) };
  }
  return undefined;
}

/** The UDP ports of a process that are bound to no address, as those of an engine are: 0.0.0.0, :: or ::ffff:0.0.0.0. */
export function portsOf(pid: number): number[] {
  if (process.platform !== "linux") return [];
  const open = new Set(openBy(pid));
  const ports = ["udp", "udp6"].flatMap((table) =>
    // The network namespace of that process, which may differ from ours.
    rowsOf(`/proc/${pid}/net/${table}`).flatMap((fields) => {
      const [, address = "", port = ""] = /^(0+|0+FFFF0+):([0-9A-F]{4})$/.exec(fields[1] ?? "") ?? [];
      return address !== "" && open.has(inodeOf(fields)) ? [Number.parseInt(port, 16)] : [];
    }),
  );
  return [...new Set(ports)];
}

const inodeOf = (fields: readonly string[]) => `socket:[${fields[9] ?? ""}]`;

function rowsOf(path: string): string[][] {
  return read(path)
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/\s+/));
}

/** proc(5): `sl local_address …  inode`, the port in hexadecimal after the colon, the inode the tenth field. */
function socketsOn(port: number, table: string): string[] {
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  return rowsOf(`/proc/net/${table}`)
    .filter(([, local]) => local?.endsWith(suffix) === true)
    .map(inodeOf);
}

const hasOpen = (pid: number, sockets: ReadonlySet<string>) => openBy(pid).some((each) => sockets.has(each));

function openBy(pid: number): string[] {
  try {
    const directory = `/proc/${pid}/fd`;
    return readdirSync(directory).map((fd) => linkOf(join(directory, fd)));
  } catch {
    // The process has ended, or belongs to another user.
    return [];
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    // Closed in the meantime.
    return "";
  }
}

function commandName(pid: number): string {
  return read(`/proc/${pid}/comm`).trim();
}

function read(path: string): string {
  try {
    return readText(path);
  } catch {
    // The process has ended, or the kernel lacks this address family.
    return "";
  }
}
