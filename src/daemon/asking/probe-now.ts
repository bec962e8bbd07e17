// `agent status --check`: probes the organizations that no daemon watches. Needs root, for the engine's socket;
// other users get the result of check-auth, at most a minute old.

import { makeServerHealth, withHealth } from "../../node/contact/server-mode/server-health.ts";
import { decidedWithinMs } from "../../node/health/prober.ts";
import type { OrganizationSettings } from "../../node/contact/organization-deps.ts";
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
    report.teams.map(async (status) => {
      const isWatched = status.mode === "desktop" && report.daemon.running;
      if (status.state !== "running" || isWatched) return status;
      const probed = system.isRoot ? await probe(status, settings, system) : status;
      if (probed.health !== undefined) return probed;
      const why = system.isRoot ? "its engine was not found" : "only root can probe it now";
      return { ...probed, message: probed.message ?? `Whether traffic passes is unknown: ${why}` };
    }),
  );
  return { ...report, teams };
}

async function probe(
  status: OrganizationState,
  settings: OrganizationSettings,
  system: System,
): Promise<OrganizationState> {
  const watch = makeServerHealth(openOrganization(settings.configRoot, status.team), { settings, system });
  // For a lighthouse, "lighthouses" means the nodes that it watches.
  await withHealth(watch, () => watch.check(decidedWithinMs, "lighthouses"));
  const health = watch.current();
  return health === undefined ? status : { ...status, health };
}
