// The service of names: keeps the block in /etc/hosts as the organizations' files say, once a second. It has no network
// and answers no queries, so it cannot disturb how the machine resolves other names.

import { closeSync, statSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../../errors.ts";
import type { Log } from "../../log.ts";
import type { System } from "../../system.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { makeHostsEditor, openHosts, type HostsEditor } from "./hosts-editor.ts";
import { hostsLines, readMachineNames, type MachineNames } from "./machine-names.ts";

export const hostsFile = "/etc/hosts";
const everyMs = 1000;
/** After a failure, such as a full disk. */
const pauseMs = 10_000;
/** How often another program's change may be answered before a pause: two programs must not fight over the file. */
const maxWritesInRow = 5;

type Places = { configRoot: string; path: string; owner?: number };
type Needs = { system: Pick<System, "now" | "sleep" | "executable">; log: Log };

/** Returns when the executable has been replaced, so that the new version takes over. Rejects when aborted. */
export async function keepNames(places: Places, { system, log }: Needs, signal?: AbortSignal): Promise<void> {
  const isReplaced = watchFile(system.executable);
  const step = makeNamesStep(places, system);
  let said = "";
  try {
    while (!isReplaced()) {
      let waitMs = everyMs;
      try {
        if (step.run() === "fought") {
          log.warn(
            `Another program removes the names from ${places.path} each time; trying again in 10 seconds`,
          );
          waitMs = pauseMs;
        }
        said = "";
      } catch (error) {
        waitMs = pauseMs;
        if (said !== messageOf(error)) log.warn(messageOf(error));
        said = messageOf(error);
      }
      await system.sleep(waitMs, signal);
    }
  } finally {
    step.close();
  }
}

type Done = ReturnType<HostsEditor["put"]> | "fought";

/** One look at the organizations' files and at the hosts file. */
export function makeNamesStep(
  { configRoot, path, owner }: Places,
  { now }: Pick<System, "now">,
): { run(): Done; close(): void } {
  const editor = makeHostsEditor(path, { now, ...(owner === undefined ? {} : { owner }) });
  let seen: string | undefined;
  let { names }: MachineNames = { names: [], without: [] };
  let isNew = false;
  let writes = 0;
  /** The hosts file at the last look at which it was right: without a change, it need not be read again. */
  let calm: string | undefined;
  return {
    run() {
      const state = stateOf(configRoot);
      const before = markOf(path);
      if (state === seen && before === calm) return "same";
      if (state !== seen) {
        ({ names } = readMachineNames(configRoot));
        seen = state;
        isNew = true;
        calm = undefined;
      }
      const done = editor.put((taken) => hostsLines(names, taken).lines);
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

/** Takes the block out. Waits for a program that is writing the file. */
export async function clearNames(
  { path, owner }: Omit<Places, "configRoot">,
  { now, sleep }: Pick<System, "now" | "sleep">,
): Promise<"same" | "written" | "later"> {
  const editor = makeHostsEditor(path, { now, ...(owner === undefined ? {} : { owner }) });
  try {
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
  const files = ["hosts.json", "host.crt", "config.yml", "auth-revoked.json"];
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
