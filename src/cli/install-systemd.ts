// `agent install-systemd`: the units of this machine's organizations.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import type { Command } from "./command.ts";

export const command: Command = {
  name: "install-systemd",
  summary: "Create or recreate the systemd units (Linux)",
  notes:
    "Organizations in server mode get their engine's unit and the timer of check-auth, those in desktop mode (and a\n" +
    "machine without any) the daemon's unit. Units that are as they should be are left alone.",
  flags: {
    "org-slug": { type: "string", valueHint: "SLUG", description: "Only this organization" },
    uninstall: { type: "boolean", description: "Stop and remove the units" },
  },
  examples: [
    `${brand.executable} install-systemd`,
    `${brand.executable} install-systemd --dry-run`,
    `${brand.executable} install-systemd --uninstall`,
  ],
  async run({ settings, system, values, output }) {
    const services = await import("../node/services.ts");
    const { applyChanges, planChanges } = await import("../platform/apply.ts");
    const slug = values.text("org-slug");
    const teams = services
      .readTeams(settings.configRoot)
      .filter((team) => slug === undefined || team.slug === slug);
    if (slug !== undefined && teams.length === 0) {
      throw new AppError("not_registered", `There is no organization "${slug}" in ${settings.configRoot}`);
    }
    const changes = values.on("uninstall")
      ? services.planSystemdRemoval(slug, settings)
      : services.planSystemdServices(teams, settings, system);
    const steps = planChanges(changes);
    if (settings.dryRun) return output.plan(steps);
    services.requireSystemd(system);
    if (!values.on("uninstall") && teams.some(({ mode }) => mode === "server")) {
      const { requireEngine } = await import("../node/overlay.ts");
      requireEngine(settings, system);
    }
    await applyChanges(changes, system);
    const files = steps.flatMap((step) => (step.step === "file" && step.change !== "same" ? [step] : []));
    output.result(
      { changed: files.length > 0, files: files.map(({ path, change }) => ({ path, change })) },
      files.length === 0
        ? "The units are as they should be\n"
        : files.map(({ path, change }) => `${path} ${change}\n`).join(""),
    );
  },
};
