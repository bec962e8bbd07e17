// What a name is, and where programs of this machine get its address from. Asks the C library, as most programs do.

import { messageOf } from "../../errors.ts";
import { readTextIfThere } from "../../files.ts";
import { formatAddress, parseAddress } from "../../ip.ts";
import type { System } from "../../system.ts";
import { namesIn, splitHosts } from "./hosts-block.ts";
import { hostsLines, readMachineNames, type MachineName, type MachineNames } from "./machine-names.ts";

export type NamesState = MachineNames & {
  /** Lines of the block; undefined without a block. */
  block: readonly string[] | undefined;
  /** Names of other lines of the file. */
  taken: ReadonlySet<string>;
  /** How many names have no place in the file. */
  leftOut: number;
  /** The block is what it should be. */
  isCurrent: boolean;
  /** Why the file's block cannot be read. */
  fault?: string;
};

export function readNamesState(configRoot: string, path: string): NamesState {
  const known = readMachineNames(configRoot);
  try {
    const { rest, block } = splitHosts(readTextIfThere(path) ?? "");
    const taken = namesIn(rest);
    const { lines, leftOut } = hostsLines(known.names, taken);
    return { ...known, block, taken, leftOut, isCurrent: Bun.deepEquals(lines, block ?? []) };
  } catch (error) {
    return {
      ...known,
      block: undefined,
      taken: new Set(),
      leftOut: 0,
      isCurrent: false,
      fault: messageOf(error),
    };
  }
}

/** The entries of `beta`, `beta.acme.internal` or an address. */
export function findNames(names: readonly MachineName[], text: string): MachineName[] {
  const plain = text.toLowerCase().replace(/\.$/, "");
  const address = canonical(plain);
  return names.filter(
    (each) =>
      each.names.some((name) => name === plain || name.split(".")[0] === plain) ||
      each.addresses.some((other) => canonical(other) === address),
  );
}

/** Where the C library's answer comes from. `dns`: from a name server, or another source of nsswitch.conf. */
export type Source = "block" | "hosts" | "dns" | "none";
export type Answer = { source: Source; answers: readonly string[] };

const lookupMs = 5000;

/** What a program gets for a full name. */
export async function askSystem(
  name: string,
  { block, taken }: Pick<NamesState, "block" | "taken">,
  system: Pick<System, "lookup" | "sleep">,
): Promise<Answer> {
  const over = new AbortController();
  const late = system.sleep(lookupMs, over.signal).then(
    () => [],
    () => [],
  );
  const found = await Promise.race([system.lookup(name, "system"), late]);
  over.abort();
  const answers = [...new Set(found.map(canonical))];
  if (answers.length === 0) return { source: "none", answers };
  if (taken.has(name)) return { source: "hosts", answers };
  return { source: namesIn((block ?? []).join("\n")).has(name) ? "block" : "dns", answers };
}

/** Whether all that a program gets are addresses of this entry. */
export function agrees({ addresses }: MachineName, { answers }: Answer): boolean {
  const own = addresses.map(canonical);
  return answers.length > 0 && answers.every((each) => own.includes(each));
}

function canonical(text: string): string {
  const address = parseAddress(text);
  return address === undefined ? text : formatAddress(address);
}
