// `agent install-launchd`: installs the daemon as a launchd job (macOS).

import { brand } from "../../brand.ts";
import type { Implementation } from "../command.ts";
import { reportFiles, requireOrganization, serviceFlags } from "./service-changes.ts";

export const command: Implementation = {
  notes:
    "One daemon runs the engines of all organizations, so --org-slug only checks that this organization exists. A\n" +
    "property list that is up to date is not touched.",
  args: serviceFlags,
  examples: [
    `${brand.executable} install-launchd`,
    `${brand.executable} install-launchd --dry-run`,
    `${brand.executable} install-launchd --uninstall`,
  ],
  async run({ settings, system, values, output, log }) {
    const services = await import("../../node/enroll/services.ts");
    const { planNamesRemoval } = await import("../../node/enroll/optional-services.ts");
    const { requireRoot, requireSafePrograms } = await import("../../node/enroll/service-checks.ts");
    const { applyChanges, planChanges } = await import("../../platform/machine-changes.ts");
    const { isManagerHere, requireManager } = await import("../../platform/service-manager.ts");
    if (!settings.dryRun) requireManager("launchd", system);
    if (!settings.dryRun) requireRoot(system);
    // A plan is also shown on a machine without launchd, where some checks would fail.
    const isHere = isManagerHere("launchd", system);
    if (!values.on("uninstall") && isHere) requireSafePrograms(settings, system);
    const changes = values.on("uninstall")
      ? [...services.planLaunchdRemoval(settings), ...(isHere ? planNamesRemoval(settings, system) : [])]
      : services.planLaunchd(settings, system);
    const steps = planChanges(changes);
    const slug = values.text("org-slug");
    const organizations = services.readModes(settings.configRoot).filter((each) => each.slug === slug);
    await requireOrganization(slug, organizations, settings.configRoot);
    if (settings.dryRun) return output.plan(steps);
    await applyChanges(changes, system);
    if (values.on("uninstall")) {
      // A daemon that was killed has not removed its names.
      const { clearNames } = await import("../../node/names/keep-names.ts");
      await clearNames("resolver_files", system, log);
    }
    reportFiles(steps, output);
  },
};
