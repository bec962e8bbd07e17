// The hosts with which this machine has open TCP connections (Linux, proc(5)). Empty elsewhere.

import { readTextIfThere } from "../../base/files.ts";
import { formatAddress } from "../../base/ip.ts";
import { socketAddress } from "./proc-tables.ts";

/**
 * States as the kernel numbers them: established (01), opened from here (02), and those that close, whose last packets still need the
 * way that they had.
 */
const openStates = new Set(["01", "02", "04", "05", "08", "09", "0B"]);

export function openTcpPeers(): string[] {
  const texts = ["tcp", "tcp6"].map((name) => {
    try {
      return readTextIfThere(`/proc/net/${name}`) ?? "";
    } catch {
      return "";
    }
  });
  return [...new Set(texts.flatMap(parseTcpPeers))];
}

/** The remote addresses of open connections. */
export function parseTcpPeers(table: string): string[] {
  return table
    .split("\n")
    .slice(1)
    .flatMap((line) => {
      const [, , remote = "", state = ""] = line.trim().split(/\s+/);
      const [hex = ""] = remote.split(":");
      if (!openStates.has(state) || !/^([0-9A-F]{8}|[0-9A-F]{32})$/.test(hex)) return [];
      return [formatAddress(socketAddress(hex))];
    });
}
