// Whether we may change the system: root on Unix, an administrator with raised rights on Windows; and what of rights is
// Linux's alone.

export function isPrivileged(): boolean {
  if (process.platform !== "win32") return process.getuid?.() === 0;
  // Loaded here: every command would pay for it at its start.
  const { dlopen }: typeof import("bun:ffi") = require("bun:ffi");
  const shell = dlopen("shell32.dll", { IsUserAnAdmin: { args: [], returns: "i32" } });
  return shell.symbols.IsUserAnAdmin() !== 0;
}

/** Capabilities, /dev/net/tun and a keyring on a session bus are Linux's. */
export const isLinux = ({ platform }: { platform: string }): boolean => platform === "linux";

/** What somebody without these rights has to do. */
export function privilegeHint({ platform }: { platform: string }): string {
  return platform === "win32"
    ? "Run the command in a terminal that was started as administrator."
    : "Run the command with sudo.";
}
