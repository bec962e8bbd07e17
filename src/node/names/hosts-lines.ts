// The lines of names in a hosts file. Pure.

import { hostname } from "node:os";
import type { NameRecord } from "./name-records.ts";

/** The C library reads the file line by line: 0.1 ms for 1,000 names, 5 ms for 50,000. */
export const maxHostsNames = 1000;

/** Names that a system uses for itself, also without a line in /etc/hosts. */
const systemNames = /^(localhost|localdomain|broadcasthost|ip6-.*)$/;

/** Above the maximum, the kinds with lower numbers stay. */
const rank = { lighthouse: 0, alias: 1, node: 2 };

/**
 * The lines, and how many records have no room. `taken`: names that the file's other lines have, which no line of ours gets. Nodes come
 * before aliases, because a reverse lookup takes the first line of an address. `search`: adds short names. `machine`: the name of
 * the machine itself, which no node gets.
 */
export function hostsLines(
  records: readonly NameRecord[],
  taken: ReadonlySet<string>,
  search = false,
  machine = hostname(),
): { lines: string[]; leftOut: number } {
  const free = records.flatMap((record) => {
    const freeNames = record.names.filter((name) => !taken.has(name));
    return freeNames.length === 0 ? [] : [{ ...record, names: freeNames }];
  });
  const kept = free.toSorted((a, b) => rank[a.kind] - rank[b.kind]).slice(0, maxHostsNames);
  const written = [
    ...kept.filter(({ kind }) => kind !== "alias"),
    ...kept.filter(({ kind }) => kind === "alias"),
  ];
  const short = search ? shortNames(written, taken, machine) : new Map<string, string>();
  const withShort = (names: readonly string[]) => {
    const [name = ""] = names;
    const label = labelOf(name);
    return short.get(label) === name ? [...names, label] : names;
  };
  return {
    lines: written.flatMap(({ addresses, names }) =>
      addresses.map((address) => `${address} ${withShort(names).join(" ")}`),
    ),
    leftOut: free.length - kept.length,
  };
}

/** Short name → the full name that gets it: that of the first organization. */
function shortNames(
  records: readonly NameRecord[],
  taken: ReadonlySet<string>,
  machine: string,
): Map<string, string> {
  const short = new Map<string, string>();
  const hostLabel = labelOf(machine.toLowerCase());
  for (const { names } of records) {
    const [name = ""] = names;
    const label = labelOf(name);
    const isOfSystem = systemNames.test(label) || label === hostLabel;
    if (!taken.has(label) && !isOfSystem && !short.has(label)) short.set(label, name);
  }
  return short;
}

function labelOf(name: string): string {
  const [label = ""] = name.split(".");
  return label;
}
