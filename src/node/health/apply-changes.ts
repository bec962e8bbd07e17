// Applies this machine's own changes of config.yml to the running engine.

import type { System } from "../../base/system.ts";
import type { EngineControl } from "../engine/engine.ts";
import { withLock } from "../files/lock.ts";
import type { OwnChanges } from "../files/config/rewrite-config.ts";

export type ApplyDeps = {
  /** Named as the lock's holder in messages of other commands. */
  command: string;
  control: Pick<EngineControl, "reload">;
  system: Pick<System, "machineState" | "lookup" | "sleep">;
};

export async function applyChanges(
  place: { slug: string; directory: string },
  changes: OwnChanges,
  { command, control, system }: ApplyDeps,
): Promise<void> {
  // Loaded on demand: it decodes certificates, and most processes never heal.
  const { rewriteConfig } = await import("../files/config/rewrite-config.ts");
  const { readMachine } = await import("../files/granted/machine.ts");
  await withLock(place.directory, command, system, async () => {
    const machine = await readMachine(place.directory, system);
    if (rewriteConfig(place, machine, changes)) await control.reload();
  });
}
