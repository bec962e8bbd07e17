// Runs while the executable is built, as a macro: bundles the console for browsers and compresses it. A test that runs
// from source bundles when it first asks for a page.

import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const source = join(import.meta.dir, "../../console");
/** The page loads the first two; the shared worker is its own script. */
const entries = ["main.ts", "style.css", "worker.ts"];

/** The files by name, gzip in base64. Names carry a hash of the content, so that browsers may keep them for ever. */
export function bundleConsole(): Record<string, string> {
  const directory = mkdtempSync(join(tmpdir(), "agent-console-"));
  try {
    // A macro cannot call Bun.build: the bundler waits for the macro.
    const built = Bun.spawnSync([
      process.execPath,
      "build",
      ...entries.map((entry) => join(source, entry)),
      `--outdir=${directory}`,
      `--root=${source}`,
      "--target=browser",
      "--minify",
      "--splitting",
      "--entry-naming=[name]-[hash].[ext]",
      "--chunk-naming=chunk-[name]-[hash].[ext]",
      '--define=process.env.NODE_ENV="production"',
    ]);
    if (!built.success) throw new Error(`Cannot bundle the console\n${built.stderr.toString()}`);
    const files = readdirSync(directory).sort();
    return Object.fromEntries(
      files.map((name) => {
        const file = readFileSync(join(directory, name));
        // Smaller by 2.6 % than zlib at its best.
        const packed = Bun.gzipSync(name.endsWith(".js") ? dense(file.toString()) : file, {
          library: "libdeflate",
          level: 12,
        });
        return [name, Buffer.from(packed).toString("base64")];
      }),
    );
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/**
 * Without the indentation of templates, which the minifier keeps and htm and browsers ignore. A text of the console that needs
 * spaces at the beginning of a line cannot be written as one.
 */
const dense = (script: string): string => script.replaceAll(/\n\s+/g, "\n");
