// `agent version`: the version of this executable, and whether a newer release is available.

import { brand } from "../brand.ts";
import { buildInfo } from "../build-info.ts";
import type { Context, Implementation } from "./command.ts";

/** How long to wait for the release server. */
const patienceMs = 4000;

export const command: Implementation = {
  args: {
    "no-check": { type: "boolean", description: "Do not check for updates" },
    "release-url": {
      type: "string",
      valueHint: "URL",
      default: brand.releaseUrl,
      description: "Look for releases here",
    },
  },
  examples: [`${brand.executable} version`, `${brand.executable} version --no-check --json`],
  async run(context) {
    const { version, target, commit } = buildInfo;
    const update = context.values.on("no-check") ? { available: false } : await check(context);
    const news = update.available
      ? `${update.latest} is available. Install it: ${brand.executable} self-update\n`
      : "";
    context.output.result(
      { version, target, commit, update },
      `${brand.executable} ${version} (${target}, ${commit})\n${news}`,
    );
  },
};

/** No release, an unreachable server or an untrusted answer is no failure of this command: no update is available. */
async function check({
  values,
  settings,
  system,
  log,
}: Context): Promise<{ available: boolean; latest?: string }> {
  const { checkForUpdate } = await import("../node/update/self-update.ts");
  const { AppError } = await import("../errors.ts");
  const request = { releaseUrl: values.text("release-url"), allowDowngrade: false };
  try {
    return await checkForUpdate(request, settings, { system, log }, { totalMs: patienceMs });
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    log.debug(`cannot check for updates: ${error.message}`);
    return { available: false };
  }
}
