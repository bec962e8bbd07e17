// `agent install-tap`: installs the network driver and the daemon's task that Windows needs besides an engine.

import { brand } from "../../brand.ts";
import { hasCode } from "../../base/errors.ts";
import type { Context, Implementation } from "../command.ts";
import { daemonAddress } from "../node/daemon-address.ts";
import { reportFiles, requireOrganization, serviceFlags } from "./service-changes.ts";
import { valueFlag } from "../values.ts";

export const command: Implementation = {
  notes:
    "The driver comes from the engine's archive for Windows; this program knows its SHA-256. One daemon runs the engines of\n" +
    "all organizations, so --org-slug only checks that this organization exists.",
  args: {
    ...serviceFlags,
    version: valueFlag("V", "Use the archive of this engine version"),
    file: valueFlag("FILE", "Use this file: the engine's archive for Windows, or wintun.dll"),
    "release-url": valueFlag("URL", "Download releases from here"),
  },
  examples: [
    `${brand.executable} install-tap`,
    `${brand.executable} install-tap --file nebula-windows-amd64.zip`,
    `${brand.executable} install-tap --uninstall`,
  ],
  async run(context) {
    const { settings, system, values, output, log } = context;
    const { installWintun, planWintun, removeWintun } = await import("../../node/enroll/install-wintun.ts");
    const { planNamesRemoval } = await import("../../node/enroll/optional-services.ts");
    const { planTask, planTaskRemoval, readModes } = await import("../../node/enroll/services.ts");
    const { requireRoot, requireSafePrograms } = await import("../../node/enroll/service-checks.ts");
    const { applyChanges, planChanges } = await import("../../platform/machine-changes.ts");
    const { isManagerHere, requireManager } = await import("../../platform/service-manager.ts");
    if (!settings.dryRun) requireManager("task", system);
    const { placesForWintun } = await import("../../platform/windows/wintun.ts");
    const places = placesForWintun(settings, system);
    const isUninstall = values.on("uninstall");
    if (!settings.dryRun) requireRoot(system);
    // A plan is also shown on another system, where some checks would fail.
    const isHere = isManagerHere("task", system);
    if (!isUninstall && isHere) requireSafePrograms(settings, system);
    const request = {
      version: values.text("version"),
      file: values.text("file"),
      releaseUrl: values.text("release-url"),
    };
    const changes = isUninstall
      ? [...planTaskRemoval(settings, system), ...(isHere ? planNamesRemoval(settings, system) : [])]
      : planTask(settings, system);
    const library = planWintun(isUninstall ? "remove" : request, places, system);
    // The library must be there before the task starts an engine, and is removed after the daemon and its engines have ended.
    const steps = isUninstall ? [...planChanges(changes), ...library] : [...library, ...planChanges(changes)];
    const slug = values.text("org-slug");
    const organizations = readModes(settings.configRoot).filter((each) => each.slug === slug);
    await requireOrganization(slug, organizations, settings.configRoot);
    if (settings.dryRun) return output.plan(steps);
    if (isUninstall) await stopDaemon(context);
    else await installWintun(request, places, system);
    await applyChanges(changes, system);
    if (isUninstall) {
      removeWintun(places, system);
      // A daemon that was killed has not removed its names from the table by which Windows chooses name servers (NRPT).
      const { clearNames } = await import("../../node/names/keep-names.ts");
      await clearNames("nrpt", system, log);
    }
    reportFiles(steps, output);
  },
};

const stopsWithinMs = 20_000;
const stopPollMs = 200;

/** Lets the daemon end by itself, since it stops its engines first. One that hangs is left to the task scheduler, which kills it. */
async function stopDaemon({ settings, system }: Context): Promise<void> {
  const { connectDaemon } = await import("../../daemon/ipc/client.ts");
  try {
    for (let waited = 0; waited < stopsWithinMs; waited += stopPollMs) {
      // The first connection asks the daemon to end; the next ones find out whether it still runs.
      const daemon = await connectDaemon(daemonAddress(settings), system, { patient: false });
      if (waited === 0) await daemon.request({ action: "shutdown" });
      daemon.close();
      await system.sleep(stopPollMs);
    }
  } catch (error) {
    // The daemon has ended, or was not running.
    if (!hasCode(error, "daemon_unreachable")) throw error;
  }
}
