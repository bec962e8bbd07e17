// `agent self-update`: replaces this executable with a release.

import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import { buildInfo } from "../../build-info.ts";
import { AppError } from "../../base/errors.ts";
import type { UpdateRequest } from "../../release/published-release.ts";
import type { Context, Implementation } from "../command.ts";
import { switchFlag, valueFlag } from "../values.ts";

export const command: Implementation = {
  notes:
    "With --check: exit status 10 if a newer release is available, 0 if not. Under systemd, a new version that does not\n" +
    "work is rolled back within a minute, even after a power failure.",
  args: {
    check: switchFlag("Only check whether a newer release is available"),
    version: valueFlag("V", "Install this version instead of the latest"),
    rollback: switchFlag("Reinstall the version that was replaced last"),
    "allow-downgrade": switchFlag("Allow a release that is older than this one"),
    "release-url": valueFlag(
      "URL",
      "Take releases from this URL or local directory (default: the address that came with this program)",
    ),
    guard: switchFlag("Watch an update that is in progress (used by its systemd unit)"),
  },
  examples: [
    `${brand.executable} self-update`,
    `${brand.executable} self-update --check`,
    `${brand.executable} self-update --release-url https://control.example/releases/`,
  ],
  async run(context) {
    const { settings, system, values, output } = context;
    const update = await import("../../node/update/self-update.ts");
    const { isVersion } = await import("../../protocol/updates/version.ts");
    const version = values.text("version");
    if (version !== undefined && !isVersion(version)) {
      throw new AppError("usage", `--version must be a version such as 1.2.3, not "${version}"`);
    }
    const request = {
      version,
      releaseUrl: values.text("release-url"),
      allowDowngrade: values.on("allow-downgrade"),
    };
    if (values.on("guard")) return guard(context);
    if (values.on("check")) return check(request, context);
    if (settings.dryRun) {
      const { planRollBackSelf, planSelfUpdate } = update;
      return output.plan(
        values.on("rollback")
          ? await planRollBackSelf(settings, system)
          : await planSelfUpdate(request, settings, system),
      );
    }
    const outcome = values.on("rollback")
      ? await update.rollBackSelf(settings, system)
      : await update.selfUpdate(request, settings, system);
    output.result(
      outcome,
      outcome.changed
        ? `${outcome.path} is now ${outcome.to} (was ${outcome.from})\n`
        : noUpdateText({ ...outcome, version }),
    );
  },
};

async function guard({ settings, system, log }: Context): Promise<void> {
  if (settings.dryRun) {
    throw new AppError("usage", "--guard has no --dry-run: it reacts to the running update", {
      hint: "Use --dry-run without --guard to see the plan of an update.",
    });
  }
  const { guardUpdate } = await import("../../node/update/update-guard.ts");
  await guardUpdate({ stateDb: settings.stateDb, system, log });
}

/** Returns the exit status: 10 if an update is available. */
async function check(request: UpdateRequest, { settings, system, output, log }: Context): Promise<number> {
  const { checkForUpdate } = await import("../../node/update/self-update.ts");
  const { available, latest, returned } = await checkForUpdate(request, settings, { system, log });
  const { version: from } = buildInfo;
  const rolledBackLine =
    returned === undefined
      ? ""
      : `${latest} was tried here and rolled back: ${returned}. Wait for a newer release\n`;
  output.result(
    { from, to: latest, source: "release", changed: false, available, ...given({ returned }) },
    available
      ? `${latest} is available, this is ${from}\n${rolledBackLine}`
      : noUpdateText({ from, to: latest, version: request.version }),
  );
  return available ? 10 : 0;
}

/** Why nothing is newer. `version`: the requested one. `to` may be older: of a mirror that is behind, or a requested one. */
export const noUpdateText = ({
  from,
  to,
  version,
}: {
  from: string;
  to: string;
  version?: string | undefined;
}) =>
  from === to && version === undefined
    ? `${from} is the latest release\n`
    : `No newer release: ${to} is offered, this is ${from}\n`;
