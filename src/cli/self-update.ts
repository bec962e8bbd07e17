// `agent self-update`: the published release in place of this executable.

import { brand } from "../brand.ts";
import { buildInfo } from "../build-info.ts";
import { AppError } from "../errors.ts";
import type { Command } from "./command.ts";

export const command: Command = {
  name: "self-update",
  summary: "Replace this executable with the latest published release",
  notes:
    "With --check: exit status 10 if there is a newer release, 0 if not. A new version that does not work where\n" +
    "systemd runs it is replaced by the former one within a minute, also after a power cut.",
  flags: {
    check: { type: "boolean", description: "Only say whether there is a newer one" },
    version: { type: "string", valueHint: "V", description: "This version instead of the latest" },
    rollback: { type: "boolean", description: "Bring back the version that was replaced last" },
    "allow-downgrade": { type: "boolean", description: "Take a release that is older than this one" },
    "release-url": {
      type: "string",
      valueHint: "URL",
      default: brand.releaseUrl,
      description: "Take releases from here (an address, or a directory of this machine)",
    },
    guard: { type: "boolean", description: "Watch an update under way (its own unit runs this)" },
  },
  examples: [
    `${brand.executable} self-update`,
    `${brand.executable} self-update --check`,
    `${brand.executable} self-update --release-url https://control.example/releases/`,
  ],
  async run({ settings, system, values, output, log }) {
    const update = await import("../node/update/self-update.ts");
    const { isVersion } = await import("../release/version.ts");
    const version = values.text("version");
    if (version !== undefined && !isVersion(version)) {
      throw new AppError("usage", `--version takes a number such as 1.2.3, not "${version}"`);
    }
    const request = {
      version,
      releaseUrl: values.text("release-url"),
      allowDowngrade: values.on("allow-downgrade"),
    };
    if (values.on("guard")) {
      if (settings.dryRun) {
        throw new AppError("usage", "--guard decides by what it sees, and has no --dry-run", {
          hint: "Use --dry-run without --guard to see what an update would do.",
        });
      }
      const { guardUpdate } = await import("../node/update/update-guard.ts");
      return guardUpdate({ stateDb: settings.stateDb, system, log });
    }
    if (values.on("check")) {
      const { available, latest } = await update.checkForUpdate(request, settings, system);
      const { version: from } = buildInfo;
      output.result(
        { from, to: latest, source: "release", changed: false, available },
        available ? `${latest} is published, this is ${from}\n` : `${from} is the newest\n`,
      );
      return available ? 10 : 0;
    }
    if (settings.dryRun) {
      const { planRollBackSelf, planSelfUpdate } = update;
      return output.plan(values.on("rollback") ? planRollBackSelf(system) : planSelfUpdate(request, system));
    }
    const outcome = values.on("rollback")
      ? await update.rollBackSelf(settings, system)
      : await update.selfUpdate(request, settings, system);
    output.result(
      outcome,
      outcome.changed
        ? `${outcome.path} is now ${outcome.to}, was ${outcome.from}\n`
        : `${outcome.to} is the newest\n`,
    );
  },
};
