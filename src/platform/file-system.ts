// What files can and cannot do on this system. Below everything else: imports nothing of the product.

import { renameSync } from "node:fs";

const isWindows = process.platform === "win32";

/** Whether a directory can be opened and synced. NTFS logs its renames by itself and has no such call. */
export const syncsDirectories = !isWindows;

/** Whether modes keep others out; on Windows that is what access lists are for. */
export const hasModes = !isWindows;

/** Whether a running executable can be replaced by a rename; on Windows it can only be moved away. */
export const replacesRunning = !isWindows;

/** Whether a directory can be renamed while a file in it is open. */
export const renamesOpenDirectories = !isWindows;

/** What a file must be opened with before it can be synced. */
export const syncFlags = isWindows ? "r+" : "r";

/**
 * Like rename(2). On Windows a file that a scanner or an indexer has just opened cannot be replaced: it is tried for 2
 * s.
 */
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
