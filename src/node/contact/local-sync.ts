// Checks the configuration in force again before each check-in, and applies what that changes. Needs no control plane.

import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { because, messageOf } from "../../base/errors.ts";
import { fileStamp, removeTree } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { OverlayControl } from "../engine/control-engine.ts";
import type { EngineRunner } from "../engine/engine.ts";
import type { EngineInUse } from "../engine/engine-in-use.ts";
import { readWhole } from "../files/config/read-yaml.ts";
import { appliedMark, generationFile, readSyncState } from "../files/generations.ts";
import { isChecked, type SyncState } from "../files/config/sync-state.ts";
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
 * Returns a function that checks the configuration in force if one of these holds, and returns the content of sync.json, or
 * undefined if that may have changed:
 *
 * - Another version of this program checked it.
 * - It is damaged.
 * - The networks of this machine have changed. A laptop in the network behind a route must reach it without the overlay, and
 *   needs the route again elsewhere.
 * - The settings of a rollout are chosen (`agent update-run`), and not in force, or the reverse.
 *
 * After a failure it tries again only when the networks have changed.
 */
export function makeLocalSync(
  organization: Organization,
  deps: LocalSyncDeps,
): () => Promise<SyncState | undefined> {
  const { slug, directory } = organization;
  const { control, command, log, system } = deps;
  // Stands for a control plane that has nothing new.
  const client = { downloadConfig: async () => ({ changed: false, configVersion: undefined }) as const };
  const isWhole = makeDamageWatch(organization);
  /** The surroundings at a failed check, while they last. */
  let failedWith: string[] | undefined;
  return async () => {
    const state = readSyncState(directory);
    if (state === undefined) return undefined;
    if (await isPortLost(state, deps)) {
      await giveUpPort(organization, state, deps);
      return undefined;
    }
    const surroundings = await surroundingsNow(organization, state, system).catch((error: unknown) => {
      // A check-in must not fail for it: it may bring revocations.
      log.warn("Cannot read what of this machine is in use", because(slug, error));
      return state.surroundings;
    });
    const isUnchanged =
      Bun.deepEquals(surroundings, state.surroundings) && hasChosenSettings(organization, state);
    if (isChecked(state) && isWhole() && isUnchanged) {
      failedWith = undefined;
      return state;
    }
    if (failedWith !== undefined && Bun.deepEquals(surroundings ?? [], failedWith)) return state;
    try {
      const { syncOrganization } = await import("./sync.ts");
      const syncDeps = { client, control, engine: await deps.engine(), command, log, system };
      const { result } = await syncOrganization(organization, syncDeps);
      failedWith = result === "returned" ? (surroundings ?? []) : undefined;
    } catch (error) {
      failedWith = surroundings ?? [];
      const reason = messageOf(error);
      log.warn("The present configuration cannot be checked", { team: slug, reason });
    }
    // If config.yml is still damaged, so is server.yml, its source. Without the mark, the next check-in downloads both.
    if (!isWhole()) removeTree(generationFile(directory, appliedMark));
    return undefined;
  };
}

/** Returns a function that says whether config.yml can be read. It reads the file again only after a write. Does not throw. */
function makeDamageWatch({ directory }: Organization): () => boolean {
  let known = { stamp: "", isWhole: false };
  return () => {
    const path = generationFile(directory, "config.yml");
    // The engine reads this link, which may be gone although the file of the generation is there.
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

/** Whether config.yml uses the settings of a rollout exactly if they are chosen. */
export const hasChosenSettings = (
  { directory }: Pick<Organization, "directory">,
  state: SyncState,
): boolean =>
  state.settings === undefined ||
  state.settings.used === (chosenSettings(directory) === state.settings.order);

/** The state of this machine that routes and ports depend on (machine-facts.ts). Undefined: nothing depends on it. */
async function surroundingsNow(
  { slug, directory }: Organization,
  { surroundings }: SyncState,
  system: LocalSyncDeps["system"],
): Promise<string[] | undefined> {
  const root = dirname(directory);
  const isAlone = listOrganizations(root).every((other) => other === slug);
  if (surroundings === undefined && isAlone) return undefined;
  // Loaded on demand: most machines have one organization without routes.
  const { noteResolved } = await import("../files/granted/resolved-hosts.ts");
  // Also without such routes: the overlays of the other organizations must not route what this one needs.
  await noteResolved(directory, system);
  if (surroundings === undefined) return undefined;
  const { readMachine, surroundingsOf } = await import("../files/granted/machine-facts.ts");
  return surroundingsOf(slug, await readMachine(directory, system), surroundings);
}

/** Whether the engine is off and another program has the port of its last start, so that it could not start. */
async function isPortLost({ data_plane }: SyncState, { control, system }: LocalSyncDeps): Promise<boolean> {
  const port = data_plane?.port;
  if (port === undefined || (await control.process()) !== undefined) return false;
  const sockets = (await system.machineState()).sockets();
  return sockets.some((socket) => socket.protocol === "udp" && socket.port === port);
}

/** The next start takes any free port. A failure waits for the next check-in, which finds the port lost again. */
async function giveUpPort(
  organization: Organization,
  { data_plane }: SyncState,
  { command, log, system }: LocalSyncDeps,
): Promise<void> {
  const { keepPort } = await import("../files/config/rewrite-config.ts");
  const anyPort = undefined;
  await keepPort(organization, anyPort, { command, system }).catch(() => undefined);
  log.warn("Another program has taken the UDP port of the engine: it gets another one", {
    team: organization.slug,
    port: data_plane?.port,
  });
}
