// `agent version`: what this executable is, and whether a newer one is published.

import { brand } from "../brand.ts";
import { buildInfo } from "../build-info.ts";
import type { Command } from "./command.ts";

export const command: Command = {
  name: "version",
  summary: "Print the version and check for updates",
  flags: { "no-check": { type: "boolean", description: "Ask no server" } },
  examples: [`${brand.executable} version`, `${brand.executable} version --no-check --json`],
  async run({ output }) {
    const { version, target, commit } = buildInfo;
    const update = { available: false };
    output.result(
      { version, target, commit, update },
      `${brand.executable} ${version} (${target}, ${commit})\n`,
    );
  },
};
