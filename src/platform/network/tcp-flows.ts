// The hosts with which this machine has open TCP connections (Linux, proc(5)). Empty elsewhere.

import { readTextIfThere } from "../../base/files.ts";
import { addressFromBytes, formatAddress } from "../../base/ip.ts";

/** Established, and those that close: their last packets still need the way that they had. */
const open = new Set(["01", "02", "04", "05", "08", "09", "0B"]);

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

/** Words of 32 bits in the order of this machine: little endian on all that are supported. */
export function parseTcpPeers(table: string): string[] {
  return table
    .split("\n")
    .slice(1)
    .flatMap((line) => {
      const [, , remote = "", state = ""] = line.trim().split(/\s+/);
      const [hex = ""] = remote.split(":");
      if (!open.has(state) || !/^([0-9A-F]{8}|[0-9A-F]{32})$/.test(hex)) return [];
      const bytes = (hex.match(/.{8}/g) ?? []).flatMap((word) => [...Buffer.from(word, "hex")].toReversed());
      // An IPv4 address in a socket of IPv6.
      const isMapped =
        bytes.length === 16 && bytes.slice(0, 10).every((each) => each === 0) && bytes[10] === 255;
      return [formatAddress(addressFromBytes(isMapped ? bytes.slice(12) : bytes))];
    });
}
