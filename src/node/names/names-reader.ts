// Reads the names again when a file that they depend on has changed. Many names are read by a process of their own, so that
// the resolver goes on answering meanwhile.

import { statSync } from "node:fs";
import { join } from "node:path";
import { fileStamp } from "../../base/files.ts";
import { clean, type Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { readNameRecords, type Zone } from "./name-records.ts";
import { openNames, packNames, type PackedNames } from "./packed-names.ts";
import { readPrepared, writePrepared, type Prepared } from "./prepared-names.ts";

/** If the hosts.json files have more bytes (5,000 to 10,000 names), a separate process prepares the names. */
const manyBytes = 500_000;
const prepareMs = 60_000;

/** The names from the organizations' files. */
export type LoadedNames = { zones: readonly Zone[]; names: PackedNames };

/** The file of prepared names. `run` rewrites it; false on failure. */
type Preparer = { read(): Prepared | undefined; run(): Promise<boolean> };

export function makePreparer(
  path: string,
  configRoot: string,
  { executable, run }: Pick<System, "executable" | "run">,
  log: Log,
): Preparer {
  return {
    read: () => readPrepared(path),
    async run() {
      const argv = [executable, "names", "--prepare", path, "--config-root", configRoot];
      const { status, stderr } = await run(argv, { timeoutMs: prepareMs });
      if (status !== 0) log.warn(`Cannot prepare the names in ${path}: ${clean(stderr, 300)}`);
      return status === 0;
    },
  };
}

/** Reads all names and writes them to a file that the service of names answers from. */
export async function prepareNames(path: string, configRoot: string): Promise<void> {
  writePrepared(path, await readAll(configRoot));
}

/** The same object as long as the files do not change. */
export function makeNamesReader(configRoot: string, preparer?: Preparer): { read(): Promise<LoadedNames> } {
  let knownState: string | undefined;
  let known: LoadedNames | undefined;
  const readChanged = async (state: string): Promise<Prepared> => {
    if (preparer === undefined || hostsBytes(configRoot) < manyBytes) return readAll(configRoot);
    const prepared = preparer.read();
    if (prepared?.state === state) return prepared;
    // Without space for the file, this process reads the names.
    return ((await preparer.run()) ? preparer.read() : undefined) ?? readAll(configRoot);
  };
  return {
    async read() {
      const state = stateOf(configRoot);
      if (known !== undefined && state === knownState) return known;
      const { state: readState, zones, packed } = await readChanged(state);
      knownState = readState;
      known = { zones, names: openNames(packed) };
      return known;
    },
  };
}

async function readAll(configRoot: string): Promise<Prepared> {
  // Before the reading: the next call sees a change that comes meanwhile.
  const state = stateOf(configRoot);
  const { zones, names } = await readNameRecords(configRoot);
  return { state, zones, packed: packNames(names) };
}

function hostsBytes(configRoot: string): number {
  const sizeOf = (slug: string) =>
    statSync(join(configRoot, slug, "hosts.json"), { throwIfNoEntry: false })?.size ?? 0;
  return listOrganizations(configRoot).reduce((sum, slug) => sum + sizeOf(slug), 0);
}

/** The state of the files that the names depend on, as a text: it changes if one of them is replaced, added or removed. */
function stateOf(configRoot: string): string {
  const files = [
    "hosts.json",
    "host.crt",
    "config.yml",
    "auth-revoked.json",
    "permissions.json",
    // The address of the control plane, which no suffix may hide.
    "credentials.json",
  ];
  const slugs = listOrganizations(configRoot);
  return slugs
    .map((slug) => [slug, ...files.map((name) => fileStamp(join(configRoot, slug, name)))].join(" "))
    .join("\n");
}
