// Finds names and addresses for the resolver in the packed names of the machine's organizations. Pure.

import { learningIn } from "../../protocol/names-for-peers.ts";
import type { NameRecord, Zone } from "./name-records.ts";
import { addressKey, type PackedNames } from "./packed-names.ts";
import { reverse4, reverse6 } from "./reverse-zones.ts";

/** The records of one name or address. */
export type Records = { addresses: readonly string[]; pointers: readonly string[] };

export type NameIndex = {
  /** The zone that a name in lower case is in, without a final dot; undefined outside all zones. */
  zoneOf(name: string): string | undefined;
  /** Undefined for a name that does not exist. Empty lists for one that only has names below it. */
  find(name: string): Records | undefined;
};

const none: Records = { addresses: [], pointers: [] };

/** The domains of zones, each the first name of its zone. */
type Apexes = ReadonlySet<string>;
const apexesOf = (zones: readonly Pick<Zone, "domains">[]): Apexes =>
  new Set(zones.flatMap(({ domains }) => domains));

/** `packed`: the names of these zones. */
export function indexNames(
  packed: Pick<PackedNames, "addressesOf" | "namesAt">,
  zones: readonly Pick<Zone, "domains">[],
  apexes = apexesOf(zones),
): NameIndex {
  return {
    zoneOf(name) {
      for (let at = 0; at >= 0; at = nextLabelAt(name, at)) {
        if (apexes.has(name.slice(at))) return name.slice(at);
      }
      return undefined;
    },
    find(name) {
      const addresses = packed.addressesOf(name);
      if (addresses !== undefined) return { addresses, pointers: [] };
      if (apexes.has(name)) return none;
      const key = keyOfReverse(name);
      if (key === undefined) return undefined;
      // A part of an address has names below it.
      if (key === "part") return none;
      const pointers = packed.namesAt(key);
      return pointers.length === 0 ? undefined : { addresses: [], pointers };
    },
  };
}

/** Where the next label begins; -1 after the last one. */
function nextLabelAt(name: string, at: number): number {
  const dot = name.indexOf(".", at);
  return dot < 0 ? -1 : dot + 1;
}

/** The `addressKey` of `4.3.2.1.in-addr.arpa`; "part" for `3.2.1.in-addr.arpa`, undefined for a name that is no address. */
function keyOfReverse(name: string): string | undefined {
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
  const digits = is4 ? parts.map((part) => Number(part).toString(16).padStart(2, "0")) : parts;
  return digits.join("");
}

/**
 * The names of one organization that this node, as a name server, tells to an overlay address. Undefined: do not
 * answer, because no known node has the address. Answer NXDOMAIN for names that the address may not see.
 */
export function indexForPeers(
  packed: Pick<PackedNames, "named" | "at">,
  zone: Pick<Zone, "slug" | "domains" | "peers">,
): (asking: string) => NameIndex | undefined {
  const { slug, peers } = zone;
  // `peers` says which client may learn which names. Without it, no client gets an answer. `too_many`: it is too large to be sent.
  if (peers === undefined || peers.too_many === true) return () => undefined;
  const apexes = apexesOf([zone]);
  const learnsOf = learningIn(peers);
  return (asking) => {
    // An alias may have an address behind a router, whose host is not the node of the alias.
    const asker = packed
      .at(addressKey(asking) ?? "")
      .find((each) => each.slug === slug && each.kind !== "alias");
    if (asker === undefined) return undefined;
    const learns = (each: NameRecord) =>
      each.slug === slug && (each.node === asker.node || learnsOf(asker.class, each.class));
    const shown = {
      addressesOf(name: string) {
        const found = packed.named(name);
        return found !== undefined && learns(found) ? found.addresses : undefined;
      },
      namesAt: (key: string) =>
        packed
          .at(key)
          .filter(learns)
          .flatMap(({ names }) => names[0] ?? []),
    };
    return indexNames(shown, [zone], apexes);
  };
}
