// The hosts with which this machine has open TCP connections (Linux, proc(5)). Empty elsewhere.

import { readTextIfThere } from "../../base/files.ts";
import { addressFromBytes, formatAddress } from "../../base/ip.ts";

/** States as the kernel numbers them: established, and those that close, whose last packets still need the way that they had. */
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

/** The remote addresses of open connections. An address is words of 32 bits, little-endian on all supported machines. */
export function parseTcpPeers(table: string): string[] {
  return table
    .split("\n")
    .slice(1)
    .flatMap((line) => {
      const [, , remote = "", state = ""] = line.trim().split(/\s+/);
      const [hex = ""] = remote.split(":");
      if (!openStates.has(state) || !/^([0-9A-F]{8}|[0-9A-F]{32})$/.test(hex)) return [];
      const bytes = (hex.match(/.{8}/g) ?? []).flatMap((word) => [...Buffer.from(word, "hex")].toReversed());
      // An IPv4 address in a socket of IPv6.
      const isMapped =
        bytes.length === 16 && bytes.slice(0, 10).every((each) => each === 0) && bytes[10] === 255;
      return [formatAddress(addressFromBytes(isMapped ? bytes.slice(12) : bytes))];
    });
}
