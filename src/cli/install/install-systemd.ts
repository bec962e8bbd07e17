// `agent install-systemd`: installs the systemd units of this machine's organizations.

import { brand } from "../../brand.ts";
import type { Implementation } from "../command.ts";
import { reportFiles, requireOrganization, serviceFlags } from "./service-changes.ts";

export const command: Implementation = {
  notes:
    "An organization in server mode gets a unit for its engine and a timer for check-auth. An organization in desktop\n" +
    "mode, or a machine without any, gets the unit of the daemon. Units that are up to date are not touched.",
  args: serviceFlags,
  examples: [
    `${brand.executable} install-systemd`,
    `${brand.executable} install-systemd --dry-run`,
    `${brand.executable} install-systemd --uninstall`,
  ],
  async run({ settings, system, values, output, log }) {
    const services = await import("../../node/enroll/services.ts");
    const { areNamesOn } = await import("../../node/enroll/optional-services.ts");
    const { requireSafePrograms, requireSystemd } = await import("../../node/enroll/service-checks.ts");
    const { isManagerHere, requireManager } = await import("../../platform/service-manager.ts");
    // First whether this system can have systemd at all; below, whether systemd runs and this is root.
    if (!settings.dryRun) requireManager("systemd", system);
    const { applyChanges, planChanges } = await import("../../platform/machine-changes.ts");
    const slug = values.text("org-slug");
    const organizations = services
      .readModes(settings.configRoot)
      .filter((each) => slug === undefined || each.slug === slug);
    await requireOrganization(slug, organizations, settings.configRoot);
    if (!settings.dryRun) requireSystemd(system);
    if (!values.on("uninstall") && isManagerHere("systemd", system)) requireSafePrograms(settings, system);
    const changes = values.on("uninstall")
      ? services.planSystemdRemoval(slug, settings)
      : services.planSystemdServices(organizations, settings, system);
    const steps = planChanges(changes);
    if (settings.dryRun) return output.plan(steps);
    if (!values.on("uninstall") && organizations.some(({ mode }) => mode === "server")) {
      const { requireEngine } = await import("../../node/engine/find-engine.ts");
      requireEngine(settings, system);
    }
    const hadNames = areNamesOn(settings, system);
    await applyChanges(changes, system);
    if (hadNames && !areNamesOn(settings, system)) {
      // systemd-resolved may still have the names: the unit clears them when it ends, but not if systemd stops it between a crash and
      // the restart.
      const { clearNames } = await import("../../node/names/keep-names.ts");
      await clearNames("resolved", system, log);
    }
    reportFiles(steps, output);
  },
};
