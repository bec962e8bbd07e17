// Finds the node of a name, and where programs of this machine get its address from. Asks the C library, as most programs do.

import { messageOf } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import { canonicalAddress } from "../../base/ip.ts";
import type { System } from "../../base/system.ts";
import { namesIn, splitHosts } from "./hosts-block.ts";
import { isInHostsFile, linkOf, type ServiceState } from "./service-state.ts";
import { hostsLines } from "./hosts-lines.ts";
import { readNameRecords, type NameRecord, type NameRecords } from "./name-records.ts";
import { within } from "../../base/within.ts";

export type NamesState = NameRecords & {
  /** The lines of our block in the hosts file; undefined without a block. */
  block: readonly string[] | undefined;
  /** Names in the other lines of the hosts file. */
  taken: ReadonlySet<string>;
  /** How many names the hosts file has no room for. */
  leftOut: number;
  /** The block has the lines that it should have. */
  isCurrent: boolean;
  /** How the service serves names; undefined if it does not run. */
  service: ServiceState | undefined;
  /** Why the file's block cannot be read. */
  fault?: string;
};

export async function readNamesState(
  configRoot: string,
  path: string,
  service: ServiceState | undefined,
): Promise<NamesState> {
  const known = await readNameRecords(configRoot);
  const written = known.names.filter(({ slug }) => isInHostsFile(slug, service?.serving));
  try {
    const { rest, block } = splitHosts(readTextIfThere(path) ?? "");
    const taken = namesIn(rest);
    const { lines, leftOut } = hostsLines(written, taken, service?.search);
    return { ...known, service, block, taken, leftOut, isCurrent: Bun.deepEquals(lines, block ?? []) };
  } catch (error) {
    return {
      ...known,
      service,
      block: undefined,
      taken: new Set(),
      leftOut: 0,
      isCurrent: false,
      fault: messageOf(error),
    };
  }
}

/** The records for a text of a user: `beta`, `beta.acme.internal`, or an address. */
export function findNames(names: readonly NameRecord[], text: string): NameRecord[] {
  const plain = text.toLowerCase().replace(/\.$/, "");
  const address = canonicalAddress(plain);
  return names.filter(
    (each) =>
      each.names.some((name) => name === plain || name.split(".")[0] === plain) ||
      each.addresses.some((other) => canonicalAddress(other) === address),
  );
}

/**
 * Where the C library's answer comes from. `resolver`: systemd-resolved has it from our resolver. `dns`: from a name
 * server, or another source of nsswitch.conf.
 */
export type Source = "resolver" | "block" | "hosts" | "dns" | "none";
export type Answer = { source: Source; answers: readonly string[] };

const lookupMs = 5000;

/** The answer that a program gets for a full name of an organization. */
export async function askSystem(
  { name, slug }: { name: string; slug: string },
  { block, taken, service }: Pick<NamesState, "block" | "taken" | "service">,
  system: Pick<System, "lookup" | "sleep">,
): Promise<Answer> {
  const found = await within(system, lookupMs, system.lookup(name, "system"), []);
  const answers = [...new Set(found.map(canonicalAddress))];
  if (answers.length === 0) return { source: "none", answers };
  if (taken.has(name)) return { source: "hosts", answers };
  if (namesIn((block ?? []).join("\n")).has(name)) return { source: "block", answers };
  const link = linkOf(slug, service?.serving);
  // Disputed: another program changes the settings again and again, and ours are set again after each change.
  return { source: link?.state === "served" || link?.state === "disputed" ? "resolver" : "dns", answers };
}

/** Whether a program gets addresses of this record, and no others. */
export function agrees({ addresses }: NameRecord, { answers }: Answer): boolean {
  const recorded = addresses.map(canonicalAddress);
  return answers.length > 0 && answers.every((each) => recorded.includes(each));
}
