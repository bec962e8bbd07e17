// Checks the present configuration again and applies what that changes, before and without the control plane.

import { messageOf } from "../../errors.ts";
import type { Log } from "../../log.ts";
import type { System } from "../../system.ts";
import type { EngineRunner, OverlayControl } from "../engine/engine.ts";
import type { EngineInUse } from "../engine/engine-in-use.ts";
import { isChecked, readSyncState, type SyncState } from "../files/generations.ts";
import type { Organization } from "../files/organizations.ts";

type LocalEdge = {
  control: OverlayControl;
  engine(): Promise<EngineInUse>;
  command: string;
  log: Log;
  system: EngineRunner & Pick<System, "now" | "sleep" | "lookup" | "attachedNetworks">;
};

/**
 * Returns a function that checks it when an earlier version of this program checked it, or when the networks of this
 * machine have changed: a laptop that joins the network behind a route must not lose it, and needs the route again
 * elsewhere. After a failure it waits for the next change. The function returns the content of sync.json, or undefined if
 * that may have changed.
 */
export function makeLocalSync(
  organization: Organization,
  edge: LocalEdge,
): () => Promise<SyncState | undefined> {
  const { control, command, log, system } = edge;
  const client = { downloadConfig: async () => ({ changed: false, configVersion: undefined }) as const };
  let failedWith: string[] | undefined;
  return async () => {
    const state = readSyncState(organization.directory);
    if (state === undefined) return undefined;
    const surroundings = await presentSurroundings(organization.directory, state, system);
    if (isChecked(state) && Bun.deepEquals(surroundings, state.surroundings)) return state;
    if (failedWith !== undefined && Bun.deepEquals(surroundings ?? [], failedWith)) return state;
    try {
      const { syncOrganization } = await import("./sync.ts");
      const edgeNow = { client, control, engine: await edge.engine(), command, log, system };
      const { result } = await syncOrganization(organization, edgeNow);
      failedWith = result === "returned" ? (surroundings ?? []) : undefined;
    } catch (error) {
      failedWith = surroundings ?? [];
      const reason = messageOf(error);
      log.warn("The present configuration cannot be checked", { team: organization.slug, reason });
    }
    return undefined;
  };
}

/** Undefined where no routes depend on them. */
async function presentSurroundings(
  directory: string,
  { surroundings }: SyncState,
  system: LocalEdge["system"],
): Promise<string[] | undefined> {
  if (surroundings === undefined) return undefined;
  const { networkNames, reservedNetworks } = await import("../files/reserved-networks.ts");
  return networkNames(reservedNetworks({ directory }, await system.attachedNetworks()));
}
