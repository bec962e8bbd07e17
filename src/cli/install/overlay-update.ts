// `agent overlay update`: installs the newest engine and restarts the organizations that run.

import { brand } from "../../brand.ts";
import type { Implementation } from "../command.ts";
import { engineFlags, engineRequest, runInstall, signedListNotes } from "./overlay-install.ts";
import { switchFlag } from "../values.ts";

export const command: Implementation = {
  notes:
    "Restarts each running organization once, one after the other. Exit status 1 if one does not run the new engine\n" +
    "afterwards, 6 if the releases cannot be reached and the system's package has no newer engine. With --check: exit\n" +
    "status 10 if a newer engine is available, 0 if not.\n" +
    signedListNotes,
  args: {
    ...engineFlags,
    check: switchFlag("Only check whether a newer engine is available"),
  },
  examples: [`${brand.executable} overlay update`, `${brand.executable} overlay update --check --json`],
  async run(context) {
    const { settings, system, values, output, log } = context;
    if (values.on("check")) {
      const { checkEngine } = await import("../../node/engine/overlay-install.ts");
      const { available, ...rest } = await checkEngine(await engineRequest(values), settings, {
        system,
        log,
      });
      output.result(
        { ...rest, source: "release", changed: false, available },
        available
          ? `${rest.to} is available, ${rest.from ?? "none"} is installed\n`
          : noUpdateText({ ...rest, version: values.text("version") }),
      );
      return available ? 10 : 0;
    }
    const { requireEngine } = await import("../../node/engine/find-engine.ts");
    requireEngine(settings, system);
    return runInstall(context, { restarts: true });
  },
};

/** Why nothing is newer. `version`: the requested one. `to` may be older: of a mirror that is behind, or a requested one. */
function noUpdateText({
  from,
  to,
  version,
}: {
  from: string | null;
  to: string;
  version?: string | undefined;
}) {
  if (from === to && version === undefined) return "The installed engine is the newest\n";
  return `No newer engine: ${to} is offered, ${from ?? "none"} is installed\n`;
}
