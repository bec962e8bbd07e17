// `agent version`: what this executable is, and whether a newer one is published.

import { brand } from "../brand.ts";
import { buildInfo } from "../build-info.ts";
import type { Command, Context } from "./command.ts";

/** A release server that says nothing for this long is not waited for. */
const patienceMs = 4000;

export const command: Command = {
  name: "version",
  summary: "Print the version and check for updates",
  flags: {
    "no-check": { type: "boolean", description: "Ask no server" },
    "release-url": {
      type: "string",
      valueHint: "URL",
      default: brand.releaseUrl,
      description: "Where releases lie",
    },
  },
  examples: [`${brand.executable} version`, `${brand.executable} version --no-check --json`],
  async run(context) {
    const { version, target, commit } = buildInfo;
    const update = context.values.on("no-check") ? { available: false } : await check(context);
    const news = update.available ? `${update.latest} is published: ${brand.executable} self-update\n` : "";
    context.output.result(
      { version, target, commit, update },
      `${brand.executable} ${version} (${target}, ${commit})\n${news}`,
    );
  },
};

/** Nothing published, nothing reachable, nothing trusted: no update, and no failure of this command. */
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
    return await checkForUpdate(request, settings, system, { totalMs: patienceMs });
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    log.debug(`no update known: ${error.message}`);
    return { available: false };
  }
}
