// The service of names of Linux (`agent names --run`); elsewhere daemon-names.ts. If programs ask systemd-resolved, it asks our
// resolver for the organizations' domains; else the names are in a block of /etc/hosts. Either way, other names are found as before.

import { defer } from "../../base/defer.ts";
import { given } from "../../base/given.ts";
import { closeSync } from "node:fs";
import { basename, join } from "node:path";
import { brand, namesStatePath } from "../../brand.ts";
import { messageOf } from "../../base/errors.ts";
import { fileStamp, readTextIfThere } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import type { NamesPlaces } from "../../platform/names-places.ts";
import type { System } from "../../base/system.ts";
import { hasMarks } from "./hosts-block.ts";
import { makeHostsEditor, openHosts, type HostsEditor } from "./hosts-editor.ts";
import { hostsLines, maxHostsNames } from "./hosts-lines.ts";
import { makeNamesReader, makePreparer, type LoadedNames } from "./names-reader.ts";
import { preparedFile } from "./prepared-names.ts";
import { afterFailureMs, makeService, onceEach } from "./name-service.ts";
import { clearWay, openWay } from "./system-resolution.ts";

export const hostsFile = "/etc/hosts";
/** Short, because an engine that starts again has a new interface without settings. */
const everyMs = 250;
/** After so many changes by another program that were undone in a row, there is a pause: two programs must not fight over the file. */
const maxRestoresInRow = 5;
/** Names that stood for so long ended the row. */
const rowEndsMs = 60_000;

/** `path`: the hosts file. `owner`: the user that must own it. `search`: short names are found too. */
type Places = {
  configRoot: string;
  path: string;
  owner?: number;
  search?: boolean;
  /** Networks whose nodes are answered, where the organization wants it; undefined: none. */
  peers?: readonly string[] | undefined;
};
type Deps = { system: Pick<System, "now" | "monotonic" | "sleep" | "executable" | "env" | "run">; log: Log };

/**
 * Returns when the executable has been replaced, so that the new version takes over. Rejects when aborted. A failure of
 * one way to deliver names never ends the service: that would end the other way, too.
 */
export async function keepNames(places: Places, { system, log }: Deps, signal?: AbortSignal): Promise<void> {
  const isReplaced = watchFile(system.executable);
  const cache = system.env["CACHE_DIRECTORY"];
  const reader = makeNamesReader(
    places.configRoot,
    cache === undefined ? undefined : makePreparer(join(cache, preparedFile), places.configRoot, system, log),
  );
  const block = makeNamesStep(places, system);
  const service = openService(places, { system, log });
  const warn = onceEach(log);
  try {
    while (!isReplaced()) {
      let waitMs = everyMs;
      try {
        // After a round that worked (`warn("")`) the next failure is logged, even if it is the same.
        const known = await reader.read();
        const inBlock = await service?.serve(known);
        const result = block.run(known, inBlock);
        if (result === "fought") {
          warn(`Another program removes the names from ${places.path} each time; trying again in 10 seconds`);
          waitMs = afterFailureMs;
        } else if (result !== "later") warn("");
      } catch (error) {
        waitMs = afterFailureMs;
        warn(messageOf(error));
      }
      await system.sleep(waitMs, signal);
    }
  } finally {
    block.close();
    service?.close();
  }
}

/** Undefined in the unit of an earlier release, which has no network and no such directory: it keeps the names in the hosts file. */
function openService(places: Places, { system, log }: Deps): ReturnType<typeof makeService> | undefined {
  const runtime = system.env["RUNTIME_DIRECTORY"];
  if (runtime === undefined) {
    log.warn(`The service of names is of an earlier release. Renew it: ${brand.executable} names --on`);
    return undefined;
  }
  const statePath = join(runtime, basename(namesStatePath));
  const settings = openWay("resolved", { ...places, monotonic: system.monotonic });
  return makeService({ ...places, statePath, settings }, system, log);
}

type UpdateResult = ReturnType<HostsEditor["update"]> | "fought";

/**
 * Returns what puts the names into the hosts file: each call of `run` looks once. `inBlock`: whether the names of an organization
 * belong there; by default all. `fought`: another program has undone our writes several times.
 */
export function makeNamesStep(
  { path, owner, search = false }: Omit<Places, "configRoot">,
  { now }: Pick<System, "now">,
): { run(known: LoadedNames, inBlock?: (slug: string) => boolean): UpdateResult; close(): void } {
  const editor = makeHostsEditor(path, { now, ...given({ owner }) });
  /** What the last run had to write. `slugs`: the organizations, and whether their names belong into the file, as a text. */
  let last: { known: LoadedNames; slugs: string } | undefined;
  /** Names of ours have changed and are not written yet: the next write does not undo a change by another program. */
  let areUnwritten = false;
  /** Writes in a row that undid a change by another program, and when the last one was. */
  let restores = 0;
  let restoredAt = Number.NEGATIVE_INFINITY;
  /** Stamp of the hosts file when it was right: it is not read again before it changes. Undefined: it was not right. */
  let rightStamp: string | undefined;
  return {
    run(known, inBlock = () => true) {
      const slugs = known.zones.map(({ slug }) => `${slug} ${inBlock(slug)}`).join();
      const stamp = fileStamp(path);
      if (last?.known !== known || last.slugs !== slugs) {
        last = { known, slugs };
        areUnwritten = true;
        rightStamp = undefined;
      }
      if (stamp === rightStamp) return "same";
      // The file may be read-only in a container, which is no failure while there is nothing to write.
      if (known.names.list(inBlock, 1).length === 0 && !hasMarks(readTextIfThere(path) ?? "")) {
        rightStamp = stamp;
        return "same";
      }
      // Names that other lines have are left out, so that many more are listed to fill the block.
      const result = editor.update(
        (taken) => hostsLines(known.names.list(inBlock, maxHostsNames + taken.size), taken, search).lines,
      );
      rightStamp = result === "same" ? stamp : undefined;
      // Another program is writing the file: the next round tries again.
      if (result === "later") return result;
      const isRestore = result === "written" && !areUnwritten;
      areUnwritten = false;
      if (!isRestore) return result;
      const at = now();
      restores = at - restoredAt < rowEndsMs ? restores + 1 : 1;
      restoredAt = at;
      return restores < maxRestoresInRow ? result : "fought";
    },
    close: editor.close,
  };
}

/** Removes names from systemd-resolved and from the hosts file; on other systems, the daemon's settings. */
export async function clearNames(
  way: NamesPlaces["way"],
  system: Pick<System, "now" | "sleep">,
  log: Log,
): ReturnType<typeof clearBlock> {
  if (way !== "resolved") {
    await clearWay(way);
    return "written";
  }
  // Without a bus there is no systemd-resolved with settings either. The hosts file must be cleared in any case.
  await clearWay(way).catch((error: unknown) => log.debug(messageOf(error)));
  return clearBlock({ path: hostsFile }, system);
}

/** Removes the block. Waits for a program that is writing the file. */
export async function clearBlock(
  { path, owner }: Omit<Places, "configRoot">,
  { now, sleep }: Pick<System, "now" | "sleep">,
): Promise<"same" | "written" | "later"> {
  const editor = makeHostsEditor(path, { now, ...given({ owner }) });
  using _ = defer(() => editor.close());
  if (!hasMarks(readTextIfThere(path) ?? "")) return "same";
  let result = editor.update(() => []);
  for (let tries = 0; result === "later" && tries < 15; tries++) {
    await sleep(300);
    result = editor.update(() => []);
  }
  return result;
}

/** Throws, with the reason, if the file must not be changed. */
export function refuseForeignHosts(path: string, owner = 0): void {
  closeSync(openHosts(path, owner));
}

/** Returns what tells whether another file has come in the place of this one. A missing file is being replaced: wait for the new one. */
function watchFile(path: string): () => boolean {
  const former = fileStamp(path);
  const isReplacement = (stamp: string) => stamp !== "" && stamp !== former;
  return () => isReplacement(fileStamp(path));
}
