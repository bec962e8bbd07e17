// The address of the daemon of this machine.

import type { Settings } from "./settings.ts";

export type DaemonAddress = { kind: "socket"; path: string } | { kind: "pipe"; name: string };

/** From --ipc-mode, or the default of the operating system. */
export function daemonAddress(
  settings: Pick<Settings, "ipcMode" | "socketPath" | "pipeName">,
): DaemonAddress {
  return settings.ipcMode === "pipe"
    ? { kind: "pipe", name: settings.pipeName }
    : { kind: "socket", path: settings.socketPath };
}
