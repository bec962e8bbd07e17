// Checks the present configuration again and applies what that changes, before and without the control plane.

import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { messageOf } from "../../base/errors.ts";
import { fileStamp, removeTree } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { EngineRunner, OverlayControl } from "../engine/engine.ts";
import type { EngineInUse } from "../engine/engine-in-use.ts";
import { readWhole } from "../files/config/read-yaml.ts";
import {
  appliedMark,
  generationFile,
  isChecked,
  readSyncState,
  type SyncState,
} from "../files/generations.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { chosenSettings } from "../files/update-order.ts";
import type { Organization } from "../files/organizations.ts";

type LocalSyncDeps = {
  control: OverlayControl;
  engine(): Promise<EngineInUse>;
  command: string;
  log: Log;
  system: EngineRunner & Pick<System, "now" | "sleep" | "lookup" | "machineState">;
};

/**
 * Returns a function that checks it when another version of this program checked it, when it is damaged, or when the networks
 * of this machine have changed: a laptop that joins the network behind a route must not lose it, and needs the route again
 * elsewhere. Also when the settings of a rollout are chosen that are not in force. After a failure it waits for the next change.
 * The function returns the content of sync.json, or undefined if that may have changed.
 */
export function makeLocalSync(
  organization: Organization,
  deps: LocalSyncDeps,
): () => Promise<SyncState | undefined> {
  const { control, command, log, system } = deps;
  const client = { downloadConfig: async () => ({ changed: false, configVersion: undefined }) as const };
  const isWhole = makeDamageWatch(organization);
  let failedWith: string[] | undefined;
  return async () => {
    const state = readSyncState(organization.directory);
    if (state === undefined) return undefined;
    if (await isPortLost(state, deps)) {
      const { keepPort } = await import("../files/config/rewrite-config.ts");
      await keepPort(organization, undefined, { command, system }).catch(() => undefined);
      log.warn("Another program has taken the UDP port of the engine: it gets another one", {
        team: organization.slug,
        port: state.data_plane?.port,
      });
      return undefined;
    }
    const surroundings = await presentSurroundings(organization, state, system).catch((error: unknown) => {
      // A check-in must not fail for it: it may bring revocations.
      log.warn("Cannot read what of this machine is in use", {
        team: organization.slug,
        reason: messageOf(error),
      });
      return state.surroundings;
    });
    const isSame = Bun.deepEquals(surroundings, state.surroundings) && hasChosenSettings(organization, state);
    if (isChecked(state) && isWhole() && isSame) return state;
    if (failedWith !== undefined && Bun.deepEquals(surroundings ?? [], failedWith)) return state;
    try {
      const { syncOrganization } = await import("./sync.ts");
      const syncDeps = { client, control, engine: await deps.engine(), command, log, system };
      const { result } = await syncOrganization(organization, syncDeps);
      failedWith = result === "returned" ? (surroundings ?? []) : undefined;
    } catch (error) {
      failedWith = surroundings ?? [];
      const reason = messageOf(error);
      log.warn("The present configuration cannot be checked", { team: organization.slug, reason });
    }
    // Its source is damaged, too: the next check-in has to fetch both.
    if (!isWhole()) removeTree(generationFile(organization.directory, appliedMark));
    return undefined;
  };
}

/** Whether config.yml can be read. A file is read once, and again after it was written. Does not throw. */
function makeDamageWatch({ directory }: Organization): () => boolean {
  let known = { stamp: "", isWhole: false };
  return () => {
    const path = generationFile(directory, "config.yml");
    // What the engine reads may be a link to it.
    if (!existsSync(join(directory, "config.yml"))) return false;
    try {
      const stamp = fileStamp(path);
      if (stamp !== known.stamp) known = { stamp, isWhole: readWhole(path) !== undefined };
      return known.isWhole;
    } catch {
      return false;
    }
  };
}

/** Whether the settings in force are those that are chosen. */
export const hasChosenSettings = (
  { directory }: Pick<Organization, "directory">,
  state: SyncState,
): boolean =>
  state.settings === undefined ||
  state.settings.used === (chosenSettings(directory) === state.settings.order);

/** Undefined where nothing depends on them. */
async function presentSurroundings(
  { slug, directory }: Organization,
  { surroundings }: SyncState,
  system: LocalSyncDeps["system"],
): Promise<string[] | undefined> {
  const root = dirname(directory);
  const isAlone = listOrganizations(root).every((each) => each === slug);
  if (surroundings === undefined && isAlone) return undefined;
  // Loaded on demand: most machines have one organization without routes.
  const { noteResolved } = await import("../files/granted/resolved-hosts.ts");
  await noteResolved(directory, system);
  if (surroundings === undefined) return undefined;
  const { readMachine, surroundingsOf } = await import("../files/granted/machine-facts.ts");
  return surroundingsOf(slug, await readMachine(directory, system), surroundings);
}

/** The engine is off, and its kept port belongs to another program: it could not start. */
async function isPortLost(
  { data_plane: plane }: SyncState,
  { control, system }: LocalSyncDeps,
): Promise<boolean> {
  const port = plane?.port;
  if (port === undefined || (await control.process()) !== undefined) return false;
  const sockets = (await system.machineState()).sockets();
  return sockets.some((each) => each.protocol === "udp" && each.port === port);
}
