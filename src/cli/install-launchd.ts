// `agent install-launchd`: the daemon as a job of macOS.

import { brand } from "../brand.ts";
import type { Command } from "./command.ts";
import { reportFiles, requireTeam, serviceFlags } from "./service-changes.ts";

export const command: Command = {
  name: "install-launchd",
  summary: "Create or recreate the launchd plist (macOS)",
  notes:
    "One daemon runs the engines of all organizations, so --org-slug only asks that this one is there. A property\n" +
    "list that is as it should be is left alone.",
  flags: serviceFlags,
  examples: [
    `${brand.executable} install-launchd`,
    `${brand.executable} install-launchd --dry-run`,
    `${brand.executable} install-launchd --uninstall`,
  ],
  async run({ settings, system, values, output }) {
    const services = await import("../node/enroll/services.ts");
    const { applyChanges, planChanges } = await import("../platform/apply.ts");
    const { requireManager } = await import("../platform/service-manager.ts");
    if (!settings.dryRun) requireManager("launchd", system);
    const changes = values.on("uninstall")
      ? services.planLaunchdRemoval()
      : services.planLaunchd(settings, system);
    const steps = planChanges(changes);
    if (settings.dryRun) return output.plan(steps);
    services.requireRoot(system);
    if (!values.on("uninstall")) services.requireSafePrograms(settings, system);
    const slug = values.text("org-slug");
    const teams = services.readModes(settings.configRoot).filter((team) => team.slug === slug);
    requireTeam(slug, teams, settings.configRoot);
    await applyChanges(changes, system);
    reportFiles(steps, output);
  },
};
