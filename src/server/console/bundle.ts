// Runs while the executable is built, as a macro: bundles the console for browsers and compresses it. A test that runs
// from source bundles when it first asks for a page.

import { defer } from "../../base/defer.ts";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The files by name, gzip in base64. Names carry a hash of the content, so that browsers may keep them for ever. */
export function bundleConsole(): Record<string, string> {
  const directory = mkdtempSync(join(tmpdir(), "agent-console-"));
  using _ = defer(() => rmSync(directory, { recursive: true, force: true }));
  // A macro cannot call Bun.build: the bundler waits for the macro.
  const built = Bun.spawnSync([process.execPath, join(import.meta.dir, "bundler.ts"), directory]);
  if (!built.success) throw new Error(`Cannot bundle the console\n${built.stderr.toString()}`);
  const files = readdirSync(directory).sort();
  return Object.fromEntries(
    files.map((name) => {
      const file = readFileSync(join(directory, name));
      // Smaller by 2.6 % than zlib at its best.
      const packed = Bun.gzipSync(file, {
        library: "libdeflate",
        level: 12,
      });
      return [name, Buffer.from(packed).toString("base64")];
    }),
  );
}
