// Differences between file systems by operating system. Must not import anything else of the product.

import { renameSync } from "node:fs";

const isWindows = process.platform === "win32";

/** Whether a directory can be synced. NTFS has no such call, because it journals renames. */
export const syncsDirectories = !isWindows;

/** Whether file modes protect files. Windows has access lists instead. */
export const hasModes = !isWindows;

/** Whether a rename can replace a running executable. On Windows it can only be moved away. */
export const replacesRunning = !isWindows;

/** Whether a directory can be renamed while a file in it is open. */
export const renamesOpenDirectories = !isWindows;

/** How to open a file that is then synced: on Windows only a handle that may write can sync. */
export const syncAccess = isWindows ? "update" : "read";

/** Bytes of a socket's path. The kernel needs room for a final zero too: it has 108 bytes on Linux (unix(7)), 104 on macOS (unix(4)). */
export const longestSocketPath = (platform: NodeJS.Platform = process.platform): number =>
  platform === "linux" ? 107 : 103;

/** Like rename(2). On Windows it retries for 2 s, because a virus scanner may have just opened the file. */
export function rename(from: string, to: string): void {
  for (let tries = 1; ; tries++) {
    try {
      return renameSync(from, to);
    } catch (error) {
      const passing =
        error instanceof Error && "code" in error && /^(EPERM|EACCES|EBUSY)$/.test(String(error.code));
      if (!isWindows || !passing || tries === 100) throw error;
      Bun.sleepSync(20);
    }
  }
}
