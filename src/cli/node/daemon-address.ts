// The address of the daemon of this machine, and steps of a plan that ask it.

import type { LocalAddress } from "../../daemon/ipc/transport.ts";
import { hasCode } from "../../base/errors.ts";
import type { Step } from "../../base/plan/plan.ts";
import type { System } from "../../base/system.ts";
import type { Settings } from "../settings.ts";

type DaemonPlace = Pick<Settings, "ipcMode" | "socketPath" | "pipeName" | "configRoot">;

/** The daemon's address by --ipc-mode, or the default of the operating system. */
export function daemonAddress(settings: DaemonPlace): LocalAddress {
  const { configRoot } = settings;
  return settings.ipcMode === "pipe"
    ? { kind: "pipe", name: settings.pipeName, configRoot }
    : { kind: "socket", path: settings.socketPath, configRoot };
}

/** The step of a plan that sends the daemon a request, such as "start acme". */
export function requestStep(request: string, settings: DaemonPlace): Step {
  const address = daemonAddress(settings);
  const url = address.kind === "pipe" ? address.name : `unix:${address.path}`;
  return { step: "request", method: request, url };
}

/** The same for a command that needs no daemon: no step without one. */
export async function planRequestIfThere(
  request: string,
  settings: DaemonPlace,
  system: Pick<System, "sleep">,
): Promise<Step[]> {
  return (await daemonListens(settings, system)) ? [requestStep(request, settings)] : [];
}

/** Whether a daemon answers at the address. Throws if another program does. */
export async function daemonListens(settings: DaemonPlace, system: Pick<System, "sleep">): Promise<boolean> {
  const { connectDaemon } = await import("../../daemon/ipc/client.ts");
  try {
    const daemon = await connectDaemon(daemonAddress(settings), system, { patient: false });
    try {
      await daemon.verify();
    } finally {
      daemon.close();
    }
    return true;
  } catch (error) {
    if (hasCode(error, "daemon_unreachable")) return false;
    throw error;
  }
}
