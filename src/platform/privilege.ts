// Whether this process may change the system: root on Unix, an elevated administrator on Windows.

export function isPrivileged(): boolean {
  if (process.platform !== "win32") return process.getuid?.() === 0;
  // Loaded on demand, to keep the start of every command fast.
  const { dlopen }: typeof import("bun:ffi") = require("bun:ffi");
  const shell = dlopen("shell32.dll", { IsUserAnAdmin: { args: [], returns: "i32" } });
  return shell.symbols.IsUserAnAdmin() !== 0;
}

/** A hint for a user without these rights. */
export function privilegeHint({ platform }: { platform: string }): string {
  return platform === "win32"
    ? "Run the command in a terminal started as administrator."
    : "Run the command with sudo.";
}
