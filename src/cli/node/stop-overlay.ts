// Stops and removes the services of an organization that leaves this machine or gets another mode.

import { AppError, because } from "../../base/errors.ts";
import type { Salvaged } from "../../node/files/damaged-organization.ts";
import type { Change } from "../../platform/machine-changes.ts";
import type { Context } from "../command.ts";
import { daemonAddress } from "./daemon-address.ts";

type Leaving = Pick<Salvaged, "slug" | "directory" | "mode">;

/** The units to remove, if systemd runs this organization, and the block of a strict exit, which would stay for ever. */
export async function serviceRemoval(
  { slug, mode, directory }: Leaving,
  { settings, system }: Context,
): Promise<Change[]> {
  const { permissionsOrNone } = await import("../../node/files/permissions.ts");
  const { exitBlockChanges } = await import("../../node/enroll/optional-services.ts");
  const isBlocked = permissionsOrNone(directory).exit?.strict === true;
  const unblocking = isBlocked ? exitBlockChanges(undefined, settings, system) : [];
  if (mode === "desktop") return unblocking;
  const { planSystemdRemoval } = await import("../../node/enroll/services.ts");
  const { hasSystemd } = await import("../../platform/service-manager.ts");
  const { unitsServe } = await import("../../platform/config-root.ts");
  const isOurs = hasSystemd(system) && unitsServe(settings.configRoot);
  return [...unblocking, ...(isOurs ? planSystemdRemoval(slug, settings) : [])];
}

/** Stops the engine: through systemd, through the daemon, or directly. `changes`: those of serviceRemoval. */
export async function stopOverlay(
  leaving: Leaving,
  changes: readonly Change[],
  context: Context,
): Promise<void> {
  const { system, log } = context;
  const { applyChanges } = await import("../../platform/machine-changes.ts");
  await applyChanges(changes, system);
  if (leaving.mode !== "server") await forgetInDaemon(leaving.slug, context);
  const { unmanagedEngine } = await import("../../node/engine/unmanaged-engine.ts");
  const engine = unmanagedEngine(leaving, system, log);
  if (await engine.running()) await engine.stop();
}

async function forgetInDaemon(slug: string, context: Context): Promise<void> {
  const { settings, system } = context;
  const { askDaemon } = await import("../../daemon/ipc/client.ts");
  try {
    await askDaemon(daemonAddress(settings), system, { action: "delete", team: slug }, { patient: false });
  } catch (error) {
    const code = error instanceof AppError ? error.code : undefined;
    if (code === "daemon_unreachable") return forgetWithoutDaemon(slug, context);
    // The daemon does not know this organization.
    if (code !== "unknown_team") throw error;
  }
}

/** Removes the daemon's record, so that the next daemon does not apply the old desired state to a later registration. */
async function forgetWithoutDaemon(slug: string, { settings, system, log }: Context): Promise<void> {
  const { removeRecordWithoutDaemon } = await import("../../daemon/state.ts");
  try {
    if (removeRecordWithoutDaemon(settings.stateDb, slug, log, system.now, settings.configRoot)) return;
    log.warn("The daemon does not answer. It drops the organization within a minute after it runs again", {
      team: slug,
    });
  } catch (error) {
    log.warn("The daemon's state of the organization could not be removed", because(slug, error));
  }
}
