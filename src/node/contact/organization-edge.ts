// Connects a command to one organization: to its control plane, and to its engine. systemd runs engines of mode server,
// the daemon those of mode desktop. Any other engine is found by its arguments.

import { join } from "node:path";
import { readTextIfThere } from "../../files.ts";
import type { Log } from "../../log.ts";
import type { System } from "../../system.ts";
import { connectOrganization } from "./connection.ts";
import type { OverlayControl } from "../engine/engine.ts";
import type { FollowEdge } from "./follow.ts";
import type { Organization } from "../files/organizations.ts";
import { silence } from "../files/config-file.ts";
import { isStopped } from "../files/stopped.ts";
import { foundEngine } from "../engine/found-engine.ts";
import { findEngine, type EngineSettings } from "../engine/overlay.ts";
import { hasSystemd } from "../../platform/service-manager.ts";
import { systemdEngine } from "../engine/systemd-engine.ts";

export type OrganizationSettings = EngineSettings & { configRoot: string };

export function makeOrganizationEdge(
  organization: Organization,
  settings: OrganizationSettings,
  edge: { system: System; log: Log; command: string; versionOf?: FollowEdge["versionOf"] },
): FollowEdge {
  const { system, log, command, versionOf } = edge;
  return {
    ...(versionOf === undefined ? {} : { versionOf }),
    configRoot: settings.configRoot,
    withClient: connectOrganization(organization, system, log),
    control: controlOf(organization, system, log),
    engine: () => findEngine(settings, system)?.path,
    command,
    log,
    system,
  };
}

function controlOf({ slug, config, directory }: Organization, system: System, log: Log): OverlayControl {
  if (config.mode !== "server" || !hasSystemd(system)) return foundEngine({ slug, directory }, system, log);
  const silent = silence(() => readTextIfThere(join(directory, "config.yml")) ?? "");
  const engine = systemdEngine(slug, system, silent);
  return { ...engine, wanted: async () => !isStopped(directory) && (await engine.isEnabled()) };
}
