// `agent --ipc-mode socket|pipe`: the daemon. It is in no table because it has no command word.

import { brand } from "../brand.ts";
import { makeLog } from "../log.ts";
import { lazyCommand } from "./command.ts";
import { daemonAddress } from "./daemon-address.ts";
import { logOptions } from "./settings.ts";

export const daemon = lazyCommand({ description: "Run the daemon" }, async () => ({
  examples: [`${brand.executable} --ipc-mode socket`],
  async run({ system, settings }) {
    const { requireIpcMode } = await import("../platform/service-manager.ts");
    requireIpcMode(settings.ipcMode, system);
    // The journal of systemd adds the time to each line itself.
    const stamped = system.env["JOURNAL_STREAM"] === undefined;
    const log = makeLog({ ...logOptions(settings, system), stamped });
    const { runDaemon } = await import("../daemon/daemon.ts");
    const { connectControlPlane } = await import("../daemon/control-plane.ts");
    const controlPlane = connectControlPlane(settings, system, log);
    return runDaemon({ ...settings, address: daemonAddress(settings) }, { system, log, controlPlane });
  },
}));
