// Applies this machine's own changes of config.yml to the running engine.

import type { System } from "../../base/system.ts";
import { can } from "../../engine/features.ts";
import type { EngineControl } from "../engine/control-engine.ts";
import { withLock } from "../files/lock.ts";
import type { OwnChanges } from "../files/config/rewrite-config.ts";

export type ApplyDeps = {
  /** Named as the lock's holder in messages of other commands. */
  command: string;
  control: Pick<EngineControl, "reload"> & Partial<Pick<EngineControl, "restart">>;
  /** The version of the running engine, for changes that an old one takes only at its start. */
  version?: () => Promise<string | undefined>;
  system: Pick<System, "machineState" | "lookup" | "sleep">;
};

/** Writes config.yml with the changes, and has the engine reload it, or restarts the engine. Returns whether it was restarted. */
export async function applyChanges(
  place: { slug: string; directory: string },
  changes: OwnChanges,
  { command, control, system, version }: ApplyDeps,
): Promise<boolean> {
  // Loaded on demand: it decodes certificates, and most processes never heal.
  const { rewriteConfig, withSeal } = await import("../files/config/rewrite-config.ts");
  const { readMachine } = await import("../files/granted/machine-facts.ts");
  return withLock(place.directory, command, system, async () => {
    const machine = await readMachine(place.directory, system);
    // Undefined: the seal is damaged, so config.yml stays as it is.
    const sealed = await withSeal(place);
    if (sealed === undefined || !rewriteConfig(sealed, machine, changes)) return false;
    const needsRestart = changes.routes !== undefined && !can(await version?.(), "reload_tun");
    // Without `restart`, the caller cannot restart it: then new routes come into force at its next start.
    await (needsRestart ? (control.restart ?? control.reload) : control.reload)();
    return needsRestart;
  });
}
