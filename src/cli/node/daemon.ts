// `agent --ipc-mode socket|pipe`: the daemon. It is in no table because it has no command word.

import { brand } from "../../brand.ts";
import { makeLog } from "../../base/log.ts";
import type { Implementation } from "../command.ts";
import { daemonAddress } from "./daemon-address.ts";
import { logOptions } from "../settings.ts";

export const command: Implementation = {
  examples: [`${brand.executable} --ipc-mode socket`],
  async run({ system, settings, output }) {
    const { requireIpcMode } = await import("../../platform/service-manager.ts");
    requireIpcMode(settings.ipcMode, system);
    // The journal of systemd adds the time to each line itself.
    const stamped = system.env["JOURNAL_STREAM"] === undefined;
    const log = makeLog({ ...logOptions(settings, system), stamped });
    const daemonSettings = { ...settings, address: daemonAddress(settings) };
    if (settings.dryRun) {
      const { planDaemon } = await import("../../daemon/start-plan.ts");
      output.plan(await planDaemon(daemonSettings, { system, log, say: output.say }));
      return 0;
    }
    // At rest the same few functions run for weeks; compiled, they take 2 MB more than the processor time they save is worth.
    // With 1000, a function is compiled after a thousand times as many calls as usual.
    Bun.unsafe.setJITPolicy(1000);
    const { runDaemon } = await import("../../daemon/daemon.ts");
    const { connectControlPlane } = await import("../../daemon/control-plane.ts");
    const controlPlane = connectControlPlane(settings, system, log);
    return runDaemon(daemonSettings, { system, log, controlPlane });
  },
};
