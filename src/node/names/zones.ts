// What the resolver answers from: zones of the machine's organizations, and indexes of their names. Pure.

import { addressFromBytes, canonicalAddress, formatAddress } from "../../ip.ts";
import type { MachineNames } from "./machine-names.ts";
import { reverse4, reverse6 } from "./reverse-zones.ts";

/** What one name or address stands for. */
export type Records = { addresses: readonly string[]; pointers: readonly string[] };

export type NameIndex = {
  /** The zone that a name in lower case is in, without a final dot; undefined outside all zones. */
  zoneOf(name: string): string | undefined;
  /** Undefined for a name that does not exist. Empty lists for one that only has names below it. */
  find(name: string): Records | undefined;
};

const none: Records = { addresses: [], pointers: [] };

export function indexNames({ names, zones }: Pick<MachineNames, "names" | "zones">): NameIndex {
  const apexes = new Set(zones.flatMap(({ domains }) => domains));
  const byName = new Map<string, readonly string[]>();
  // An address of a node has one name in each organization; aliases come last, and only name what nodes do not.
  const byAddress = new Map<string, string[]>();
  for (const { names: own, addresses, kind } of names) {
    for (const name of own) byName.set(name, addresses);
    const [preferred] = own;
    for (const address of preferred === undefined ? [] : addresses) {
      const key = canonicalAddress(address);
      const present = byAddress.get(key);
      if (present === undefined) byAddress.set(key, [preferred ?? ""]);
      else if (kind !== "alias" && present.length < maxPointers) present.push(preferred ?? "");
    }
  }
  return {
    zoneOf(name) {
      for (let at = 0; at >= 0; at = next(name, at)) {
        if (apexes.has(name.slice(at))) return name.slice(at);
      }
      return undefined;
    },
    find(name) {
      const addresses = byName.get(name);
      if (addresses !== undefined) return { addresses, pointers: [] };
      if (apexes.has(name)) return none;
      const address = addressOfReverse(name);
      if (address === undefined) return undefined;
      // The name of a part of an address, which has names below it.
      if (address === "") return none;
      const pointers = byAddress.get(address);
      return pointers === undefined ? undefined : { addresses: [], pointers };
    },
  };
}

/** Organizations may have overlapping networks. */
const maxPointers = 8;

/** Where the next label begins; -1 after the last one. */
function next(name: string, at: number): number {
  const dot = name.indexOf(".", at);
  return dot < 0 ? -1 : dot + 1;
}

/** The address of `4.3.2.1.in-addr.arpa`; empty for a part of an address, undefined for another name. */
function addressOfReverse(name: string): string | undefined {
  const is4 = name.endsWith(reverse4);
  if (!is4 && !name.endsWith(reverse6)) return undefined;
  const parts = name
    .slice(0, -(is4 ? reverse4 : reverse6).length)
    .split(".")
    .reverse();
  const isPart = is4
    ? (part: string) => /^(0|[1-9]\d{0,2})$/.test(part) && Number(part) < 256
    : (part: string) => /^[0-9a-f]$/.test(part);
  const whole = is4 ? 4 : 32;
  if (parts.length > whole || !parts.every(isPart)) return undefined;
  if (parts.length < whole) return "";
  return formatAddress(addressFromBytes(is4 ? parts.map(Number) : Buffer.from(parts.join(""), "hex")));
}
