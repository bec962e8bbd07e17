// What the resolver answers from: zones of the machine's organizations, and indexes of their names. Pure.

import { parseAddress } from "../../ip.ts";
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
  // An address of a node has one name in each organization; aliases come last, and only name what nodes do not. One text
  // for nearly all, because a machine may know 50,000 names.
  const byAddress = new Map<number | bigint, string | readonly string[]>();
  for (const { names: own, addresses, kind } of names) {
    for (const name of own) byName.set(name, addresses);
    const [preferred] = own;
    for (const address of preferred === undefined ? [] : addresses) {
      const key = keyOf(address);
      if (key === undefined) continue;
      const present = byAddress.get(key);
      if (present === undefined) byAddress.set(key, preferred ?? "");
      else if (kind !== "alias") byAddress.set(key, [present, preferred ?? ""].flat().slice(0, maxPointers));
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
      const key = keyOfReverse(name);
      if (key === undefined) return undefined;
      // The name of a part of an address, which has names below it.
      if (key === "part") return none;
      const pointers = byAddress.get(key);
      return pointers === undefined ? undefined : { addresses: [], pointers: [pointers].flat() };
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

/** A key for each address. Numbers, because 50,000 texts take twice the memory. */
function keyOf(text: string): number | bigint | undefined {
  const address = parseAddress(text);
  return address?.family === 4 ? Number(address.value) : address?.value;
}

/** The key of the address of `4.3.2.1.in-addr.arpa`; undefined for a name that is no address. */
function keyOfReverse(name: string): number | bigint | "part" | undefined {
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
  if (parts.length < whole) return "part";
  return is4 ? parts.reduce((sum, part) => sum * 256 + Number(part), 0) : BigInt(`0x${parts.join("")}`);
}
