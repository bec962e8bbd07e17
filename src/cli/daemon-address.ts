// The address of the daemon of this machine.

import type { LocalAddress } from "../daemon/ipc/transport.ts";
import type { Settings } from "./settings.ts";

/** From --ipc-mode, or the default of the operating system. */
export function daemonAddress(settings: Pick<Settings, "ipcMode" | "socketPath" | "pipeName">): LocalAddress {
  return settings.ipcMode === "pipe"
    ? { kind: "pipe", name: settings.pipeName }
    : { kind: "socket", path: settings.socketPath };
}
