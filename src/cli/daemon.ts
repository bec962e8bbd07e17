// `agent --ipc-mode socket|pipe`: the daemon. It has no word of its own on the command line.

import { brand } from "../brand.ts";
import { makeLog } from "../log.ts";
import type { Command } from "./command.ts";
import { daemonAddress } from "./daemon-address.ts";

export const command: Command = {
  name: "",
  summary: "Run as the daemon",
  examples: [`${brand.executable} --ipc-mode socket`],
  async run({ system, settings }) {
    const { requireIpcMode } = await import("../platform/service-manager.ts");
    requireIpcMode(settings.ipcMode, system);
    // Under systemd the journal stamps each line itself.
    const stamped = system.env["JOURNAL_STREAM"] === undefined;
    const log = makeLog({
      verbose: settings.verbose,
      ...(settings.logFile === undefined ? {} : { file: settings.logFile }),
      write: system.stderr.write,
      now: system.now,
      stamped,
    });
    const { runDaemon } = await import("../daemon/daemon.ts");
    const { connectControlPlane } = await import("../daemon/control-plane.ts");
    const controlPlane = connectControlPlane(settings, system, log);
    return runDaemon({ ...settings, address: daemonAddress(settings) }, { system, log, controlPlane });
  },
};
