// `agent version`: the version of this executable, and whether a newer release is available.

import { brand } from "../../brand.ts";
import { buildInfo } from "../../build-info.ts";
import { AppError } from "../../base/errors.ts";
import type { Context, Implementation } from "../command.ts";
import type { ErrorBody } from "../error-body.ts";
import { switchFlag, valueFlag } from "../values.ts";

/** How long to wait for the release server. */
const checkWithinMs = 4000;

export const command: Implementation = {
  args: {
    "no-check": switchFlag("Do not check for updates"),
    "release-url": valueFlag(
      "URL",
      "Look for releases here (default: the address that came with this program)",
    ),
  },
  examples: [`${brand.executable} version`, `${brand.executable} version --no-check --json`],
  async run(context) {
    const { version, target, commit } = buildInfo;
    const update: Update = context.values.on("no-check") ? { available: false } : await check(context);
    const { latest, error, unknown: whyUnknown } = update;
    let updateLine = whyUnknown === undefined ? "" : `${whyUnknown}, so there is no check for updates\n`;
    if (update.available)
      updateLine = `${latest} is available. Install it: ${brand.executable} self-update\n`;
    context.output.result(
      { version, target, commit, update },
      `${brand.executable} ${version} (${target}, ${commit})\n${updateLine}`,
    );
    if (error !== undefined)
      context.log.warn(`The check for updates failed (skip it with --no-check): ${error.message}`);
  },
};

/** The field of --json. `unknown`: why there was no check. */
type Update = { available: boolean; latest?: string; error?: ErrorBody; unknown?: string };

/** A check that fails is reported, but is no failure of this command: the version itself is known. */
async function check({ values, settings, system, log }: Context): Promise<Update> {
  const { checkForUpdate } = await import("../../node/update/self-update.ts");
  const { noAddress, releaseAddress } = await import("../../release/published-release.ts");
  const request = { releaseUrl: values.text("release-url"), allowDowngrade: false };
  try {
    if (request.releaseUrl === undefined && releaseAddress(system) === undefined)
      return { available: false, unknown: noAddress };
    return await checkForUpdate(request, settings, { system, log }, { totalMs: checkWithinMs });
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const { errorBody } = await import("../error-body.ts");
    return { available: false, error: errorBody(error) };
  }
}
