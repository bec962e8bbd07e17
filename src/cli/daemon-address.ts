// Where the daemon of this machine is reached, as the flags say.

import type { Settings } from "./settings.ts";

export type DaemonAddress = { kind: "socket"; path: string } | { kind: "pipe"; name: string };

/** A pipe on Windows or where --ipc-mode pipe asks for one, else a socket. */
export function daemonAddress(
  settings: Pick<Settings, "ipcMode" | "socketPath" | "pipeName">,
  platform: string = process.platform,
): DaemonAddress {
  const mode = settings.ipcMode ?? (platform === "win32" ? "pipe" : "socket");
  return mode === "pipe"
    ? { kind: "pipe", name: settings.pipeName }
    : { kind: "socket", path: settings.socketPath };
}
