// How the command line reaches one organization: its control plane, and its engine where systemd runs it. Teams of mode
// desktop belong to the daemon; without one nothing runs, and their files are all there is to change.

import type { Log } from "../log.ts";
import type { System } from "../system.ts";
import { connectOrganization } from "./connection.ts";
import { noEngine } from "./engine.ts";
import type { FollowEdge, TeamControl } from "./follow.ts";
import type { Organization } from "./organizations.ts";
import { findEngine, type EngineSettings } from "./overlay.ts";
import { hasSystemd } from "./services.ts";
import { systemdEngine } from "./systemd-engine.ts";

export type TeamSettings = EngineSettings & { configRoot: string };

export function makeTeamEdge(
  organization: Organization,
  settings: TeamSettings,
  { system, log, command }: { system: System; log: Log; command: string },
): FollowEdge {
  return {
    configRoot: settings.configRoot,
    withClient: connectOrganization(organization, system, log),
    control: controlOf(organization, system),
    engine: () => findEngine(settings, system)?.path,
    command,
    log,
    system,
  };
}

function controlOf({ slug, config }: Organization, system: System): TeamControl {
  if (config.mode === "server" && system.platform === "linux" && hasSystemd())
    return systemdEngine(slug, system);
  return { ...noEngine, start: async () => {}, stop: async () => {} };
}
