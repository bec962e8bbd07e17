// The daemon's use of what a node does with its control plane: one long poll for each team, changes applied by the
// transaction of sync-config, the team's engine reached through its supervisor.

import type { Log } from "../log.ts";
import type { EngineSettings } from "../node/overlay.ts";
import type { System } from "../system.ts";
import type { ControlPlane } from "./teams.ts";

export function connectControlPlane(
  _settings: EngineSettings & { configRoot: string },
  system: System,
  log: Log,
): ControlPlane {
  return {
    async follow(organization, _control, _onCheckin, signal) {
      log.debug("No connection to a control plane yet", { team: organization.slug });
      await system.sleep(2 ** 30, signal);
    },
    sync: async () => ({ result: "same" }),
  };
}
