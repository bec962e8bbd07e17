// The service of names. If programs ask systemd-resolved, it asks our resolver for the organizations' domains; else the
// names are in a block of /etc/hosts. Either way, other names are found as before.

import { closeSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { brand, namesStatePath } from "../../brand.ts";
import { messageOf } from "../../errors.ts";
import { readTextIfThere } from "../../files.ts";
import { clean, type Log } from "../../log.ts";
import type { System } from "../../system.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { hasMarks } from "./hosts-block.ts";
import { makeHostsEditor, openHosts, type HostsEditor } from "./hosts-editor.ts";
import { clearLinks, makeLinks } from "./links.ts";
import { hostsLines, maxHostsNames, readMachineNames, type Zone } from "./machine-names.ts";
import { openNames, packNames, type PackedNames } from "./packed-names.ts";
import { makePeerServers } from "./peer-servers.ts";
import { preparedFile, readPrepared, writePrepared, type Prepared } from "./prepared-names.ts";
import { resolverAddress, startResolver, type Resolver } from "./resolver.ts";
import { isInHostsFile, writeServiceState, type ServiceState, type Way } from "./service-state.ts";
import { indexNames } from "./zones.ts";

export const hostsFile = "/etc/hosts";
/** An engine that starts again has a new interface, without settings. */
const everyMs = 250;
/** With more than this in hosts.json files (5,000 to 10,000 names), the names are prepared by a process of their own. */
const manyBytes = 500_000;
const prepareMs = 60_000;
/** After a failure, such as a full disk. */
const pauseMs = 10_000;
/** How often another program's change may be answered before a pause: two programs must not fight over the file. */
const maxWritesInRow = 5;

/** `search`: short names are found too. */
type Places = {
  configRoot: string;
  path: string;
  owner?: number;
  search?: boolean;
  /** Networks whose nodes are answered, where the organization wants it; undefined: none. */
  peers?: readonly string[] | undefined;
};
type Needs = { system: Pick<System, "now" | "sleep" | "executable" | "env" | "run">; log: Log };

/**
 * Returns when the executable has been replaced, so that the new version takes over. Rejects when aborted. A failure of
 * one way to deliver names never ends the service: its end would take the other away too.
 */
export async function keepNames(places: Places, { system, log }: Needs, signal?: AbortSignal): Promise<void> {
  const isReplaced = watchFile(system.executable);
  const cache = system.env["CACHE_DIRECTORY"];
  const reader = makeNamesReader(
    places.configRoot,
    cache === undefined ? undefined : makePreparer(join(cache, preparedFile), places.configRoot, system, log),
  );
  const block = makeNamesStep(places, system);
  const runtime = system.env["RUNTIME_DIRECTORY"];
  // The unit of an earlier release has no network and no such directory. It keeps what it has: names in the hosts file.
  const service =
    runtime === undefined
      ? undefined
      : makeService(join(runtime, basename(namesStatePath)), places, system, log);
  if (service === undefined)
    log.warn(`The service of names is of an earlier release. Renew it: ${brand.executable} names --on`);
  const warn = onceEach(log);
  try {
    while (!isReplaced()) {
      let waitMs = everyMs;
      try {
        const known = await reader.look();
        const inBlock = await service?.serve(known);
        if (block.run(known, inBlock) === "fought") {
          warn(`Another program removes the names from ${places.path} each time; trying again in 10 seconds`);
          waitMs = pauseMs;
        } else warn("");
      } catch (error) {
        waitMs = pauseMs;
        warn(messageOf(error));
      }
      await system.sleep(waitMs, signal);
    }
  } finally {
    block.close();
    service?.close();
  }
}

const indexOf = ({ names, zones }: Known) => indexNames(names, zones);

/** Resolver and interfaces. `serve` says of which organizations the names belong into the hosts file. */
function makeService(
  statePath: string,
  { search = false, peers: networks }: Pick<Places, "search" | "peers">,
  { now }: Pick<System, "now">,
  log: Log,
) {
  const links = makeLinks(resolverAddress, { now, search });
  const peerServers = makePeerServers(networks, { now });
  const warn = onceEach(log);
  let resolver: Resolver | undefined;
  let served: Known | undefined;
  let failedAt: number | undefined;
  let fault: string | undefined;
  let written = "";
  const answer = async (known: Known) => {
    const isNew = served !== known;
    served = known;
    if (resolver !== undefined && isNew) resolver.use(indexOf(known));
    if (resolver !== undefined || (failedAt !== undefined && now() - failedAt < pauseMs)) return;
    try {
      resolver = await startResolver(indexOf(known));
      failedAt = fault = undefined;
    } catch (error) {
      failedAt = now();
      fault = messageOf(error);
    }
    warn(fault ?? "");
  };
  const show = (state: ServiceState) => {
    try {
      writeServiceState(state, statePath);
    } catch (error) {
      // Only `agent names` and the doctor read it: names must not depend on it.
      log.debug(messageOf(error));
    }
  };
  return {
    async serve(known: Known): Promise<(slug: string) => boolean> {
      await answer(known);
      // Without a resolver, systemd-resolved must not be told of one: it reads /etc/hosts too.
      const serving: Way =
        fault === undefined ? await links.keep(known.zones) : { way: "hosts", reason: fault };
      const peers = await peerServers.serve(known);
      const state: ServiceState = {
        schema: 1,
        serving,
        ...(fault === undefined ? {} : { fault }),
        ...(search ? { search } : {}),
        suffixes: known.zones.flatMap(({ slug, suffix }) =>
          suffix === undefined ? [] : [{ slug, ...suffix }],
        ),
        peers,
      };
      const text = JSON.stringify(state);
      if (text !== written) show(state);
      written = text;
      return (slug) => isInHostsFile(slug, serving);
    },
    close() {
      resolver?.close();
      peerServers.close();
      links.close();
    },
  };
}

/** Logs a warning when it differs from the one before; empty text stands for none. */
function onceEach(log: Log): (text: string) => void {
  let said = "";
  return (text) => {
    if (text !== said && text !== "") log.warn(text);
    said = text;
  };
}

type Done = ReturnType<HostsEditor["put"]> | "fought";

/** What the organizations' files say. */
export type Known = { zones: readonly Zone[]; names: PackedNames };

/** The file of prepared names, and what writes it anew: false if it could not. */
type Preparer = { read(): Prepared | undefined; run(): Promise<boolean> };

function makePreparer(
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
export function makeNamesReader(configRoot: string, preparer?: Preparer): { look(): Promise<Known> } {
  let seen: string | undefined;
  let known: Known | undefined;
  const read = async (state: string): Promise<Prepared> => {
    if (preparer === undefined || hostsBytes(configRoot) < manyBytes) return readAll(configRoot);
    const present = preparer.read();
    if (present?.state === state) return present;
    // Without space for the file, this process reads the names.
    return ((await preparer.run()) ? preparer.read() : undefined) ?? readAll(configRoot);
  };
  return {
    async look() {
      const state = stateOf(configRoot);
      if (known !== undefined && state === seen) return known;
      const { state: readState, zones, packed } = await read(state);
      seen = readState;
      known = { zones, names: openNames(packed) };
      return known;
    },
  };
}

async function readAll(configRoot: string): Promise<Prepared> {
  // Before the reading: a change meanwhile is seen with the next look.
  const state = stateOf(configRoot);
  const { zones, names } = await readMachineNames(configRoot);
  return { state, zones, packed: packNames(names) };
}

function hostsBytes(configRoot: string): number {
  const sizeOf = (slug: string) =>
    statSync(join(configRoot, slug, "hosts.json"), { throwIfNoEntry: false })?.size ?? 0;
  return listOrganizations(configRoot).reduce((sum, slug) => sum + sizeOf(slug), 0);
}

/** One look at the hosts file. */
export function makeNamesStep(
  { path, owner, search = false }: Omit<Places, "configRoot">,
  { now }: Pick<System, "now">,
): { run(known: Known, inBlock?: (slug: string) => boolean): Done; close(): void } {
  const editor = makeHostsEditor(path, { now, ...(owner === undefined ? {} : { owner }) });
  let former: { known: Known; slugs: string } | undefined;
  let isNew = false;
  let writes = 0;
  /** The hosts file at the last look at which it was right: without a change, it need not be read again. */
  let calm: string | undefined;
  return {
    run(known, inBlock = () => true) {
      const slugs = known.zones.map(({ slug }) => `${slug} ${inBlock(slug)}`).join();
      const before = markOf(path);
      const isSame = former?.known === known && former.slugs === slugs;
      if (isSame && before === calm) return "same";
      if (!isSame) {
        former = { known, slugs };
        isNew = true;
        calm = undefined;
      }
      // A file that cannot be changed, as in a container, is no failure where nothing is to be changed.
      if (known.names.list(inBlock, 1).length === 0 && !hasMarks(readTextIfThere(path) ?? "")) {
        calm = before;
        return "same";
      }
      // Names of other lines are left out, so this many suffice to fill the block.
      const done = editor.put(
        (taken) => hostsLines(known.names.list(inBlock, maxHostsNames + taken.size), taken, search).lines,
      );
      calm = done === "same" ? before : undefined;
      if (done === "later") return done;
      writes = done === "same" || isNew ? 0 : writes + 1;
      isNew = false;
      if (writes < maxWritesInRow) return done;
      writes = 0;
      return "fought";
    },
    close: editor.close,
  };
}

/** Takes names back from systemd-resolved and from the hosts file. */
export async function clearNames(
  system: Pick<System, "now" | "sleep">,
  log: Log,
): ReturnType<typeof clearBlock> {
  // Without a bus there is no systemd-resolved with settings either. The hosts file must be cleared in any case.
  await clearLinks(resolverAddress).catch((error: unknown) => log.debug(messageOf(error)));
  return clearBlock({ path: hostsFile }, system);
}

/** Takes the block out. Waits for a program that is writing the file. */
export async function clearBlock(
  { path, owner }: Omit<Places, "configRoot">,
  { now, sleep }: Pick<System, "now" | "sleep">,
): Promise<"same" | "written" | "later"> {
  const editor = makeHostsEditor(path, { now, ...(owner === undefined ? {} : { owner }) });
  try {
    if (!hasMarks(readTextIfThere(path) ?? "")) return "same";
    let done = editor.put(() => []);
    for (let tries = 0; done === "later" && tries < 15; tries++) {
      await sleep(300);
      done = editor.put(() => []);
    }
    return done;
  } finally {
    editor.close();
  }
}

/** Throws, with the reason, if the file must not be changed. */
export function refuseForeignHosts(path: string, owner = 0): void {
  closeSync(openHosts(path, owner));
}

/** What the names depend on. Changes if one of these files is replaced, added or removed. */
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
    .map((slug) => [slug, ...files.map((name) => markOf(join(configRoot, slug, name)))].join(" "))
    .join("\n");
}

function watchFile(path: string): () => boolean {
  const before = markOf(path);
  return () => ![before, "-"].includes(markOf(path));
}

function markOf(path: string): string {
  const found = statSync(path, { bigint: true, throwIfNoEntry: false });
  return found === undefined ? "-" : `${found.ino}.${found.mtimeNs}.${found.size}`;
}
