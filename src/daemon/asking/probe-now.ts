// For `agent status --check`: probes the organizations that no daemon watches. Needs root, for the engine's socket;
// other users get the result of check-auth, at most a minute old.

import { makeServerHealth, withHealth } from "../../node/contact/server-watch.ts";
import { decidedWithinMs } from "../../node/health/prober.ts";
import type { OrganizationSettings } from "../../node/contact/organization-edge.ts";
import { openOrganization } from "../../node/files/organizations.ts";
import type { System } from "../../base/system.ts";
import type { OrganizationState } from "../ipc/messages.ts";
import type { StatusReport } from "./status-report.ts";

export async function probeNow(
  report: StatusReport,
  settings: OrganizationSettings,
  system: System,
): Promise<StatusReport> {
  const teams = await Promise.all(
    report.teams.map(async (team) => {
      const isWatched = team.mode === "desktop" && report.daemon.running;
      if (team.state !== "running" || isWatched) return team;
      const probed = system.isRoot ? await probe(team, settings, system) : team;
      if (probed.health !== undefined) return probed;
      const why = system.isRoot ? "its engine was not found" : "only root can probe it now";
      return { ...probed, message: probed.message ?? `Whether traffic passes is unknown: ${why}` };
    }),
  );
  return { ...report, teams };
}

async function probe(
  team: OrganizationState,
  settings: OrganizationSettings,
  system: System,
): Promise<OrganizationState> {
  const watch = makeServerHealth(openOrganization(settings.configRoot, team.team), settings, system);
  await withHealth(watch, () => watch.check(decidedWithinMs, { all: false }));
  const health = watch.look();
  return health === undefined ? team : { ...team, health };
}
