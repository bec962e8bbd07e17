// Finds the process that uses a UDP port, from /proc. Linux only. Only root sees the processes of other users.

import { readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { readText } from "../open-file.ts";

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

/** proc(5): `sl local_address …  inode`, the port in hexadecimal after the colon, the inode the tenth field. */
function socketsOn(port: number, table: string): string[] {
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  return read(`/proc/net/${table}`)
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter(([, local]) => local?.endsWith(suffix) === true)
    .map((fields) => `socket:[${fields[9] ?? ""}]`);
}

function hasOpen(pid: number, sockets: ReadonlySet<string>): boolean {
  try {
    const directory = `/proc/${pid}/fd`;
    return readdirSync(directory).some((fd) => sockets.has(linkOf(join(directory, fd))));
  } catch {
    // The process has ended, or belongs to another user.
    return false;
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
