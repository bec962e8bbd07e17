// Builds the executable: `bun build.ts [--target bun-linux-x64] [--outfile PATH]`. The flags are those that were
// measured to start fastest; two builds of one commit are byte-identical.

import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import packageJson from "./package.json" with { type: "json" };

type Target = NonNullable<Extract<Bun.BuildConfig, { compile: unknown }>["compile"]>;

/** Everything Bun can compile for that the product runs on, by Bun's names. */
export const targets = [
  "bun-linux-x64",
  "bun-linux-arm64",
  "bun-linux-x64-musl",
  "bun-linux-arm64-musl",
  "bun-darwin-x64",
  "bun-darwin-arm64",
  "bun-windows-x64",
  "bun-windows-arm64",
] as const;

export function hostTarget(): string {
  const loader = `/lib/ld-musl-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so.1`;
  const musl = process.platform === "linux" && existsSync(loader);
  return `bun-${process.platform === "win32" ? "windows" : process.platform}-${process.arch}${musl ? "-musl" : ""}`;
}

/** Of the checkout; "unknown" without git or outside a checkout of our own. */
function commit(): string {
  const git = Bun.which("git");
  if (git === null || !existsSync(join(import.meta.dir, ".git"))) return "unknown";
  const argv = [git, "rev-parse", "--short=12", "HEAD"];
  const result = Bun.spawnSync(argv, { cwd: import.meta.dir, stderr: "ignore" });
  return result.exitCode === 0 ? result.stdout.toString().trim() : "unknown";
}

/** Compiles src/main.ts for the target and puts the executable at `outfile` by rename; its path. */
export async function build(target: string, outfile: string): Promise<string> {
  const wanted = target.includes("windows") && !outfile.endsWith(".exe") ? `${outfile}.exe` : outfile;
  mkdirSync(dirname(resolve(wanted)), { recursive: true });
  // In a directory of its own: the source maps are inside the executable, and Bun leaves copies beside it.
  const work = mkdtempSync(join(dirname(resolve(wanted)), ".build-"));
  try {
    const made = join(work, target.includes("windows") ? "agent.exe" : "agent");
    const result = await Bun.build({
      entrypoints: [join(import.meta.dir, "src/main.ts")],
      compile: { target, outfile: made, autoloadDotenv: false, autoloadBunfig: false } as Target,
      format: "esm",
      bytecode: true,
      splitting: true,
      minify: true,
      sourcemap: "linked",
      define: {
        BUILD_VERSION: JSON.stringify(packageJson.version),
        BUILD_COMMIT: JSON.stringify(commit()),
        BUILD_TARGET: JSON.stringify(target),
        "process.env.NODE_ENV": '"production"',
      },
    });
    if (!result.success) throw new AggregateError(result.logs, `Cannot build ${basename(wanted)}`);
    renameSync(made, wanted);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return wanted;
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: { target: { type: "string" }, outfile: { type: "string", default: "dist/agent" } },
    strict: true,
  });
  const target = values.target ?? hostTarget();
  if (!targets.some((each) => each === target)) {
    process.stderr.write(`No target "${target}"; there are ${targets.join(", ")}\n`);
    process.exitCode = 2;
  } else {
    const outfile = await build(target, values.outfile);
    process.stdout.write(`${outfile} (${packageJson.version}, ${target})\n`);
  }
}
