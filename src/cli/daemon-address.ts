// Where the daemon of this machine is reached, as the flags say.

import type { Settings } from "./settings.ts";

export type DaemonAddress = { kind: "socket"; path: string } | { kind: "pipe"; name: string };

/** What --ipc-mode asks for, else what the system's default is. */
export function daemonAddress(
  settings: Pick<Settings, "ipcMode" | "socketPath" | "pipeName">,
): DaemonAddress {
  return settings.ipcMode === "pipe"
    ? { kind: "pipe", name: settings.pipeName }
    : { kind: "socket", path: settings.socketPath };
}
