// Builds the executable: `bun build.ts [--target bun-linux-x64] [--outfile PATH]`. The flags are those that were
// measured to start fastest; two builds of one commit are byte-identical.

import { existsSync } from "node:fs";
import { parseArgs } from "node:util";
import packageJson from "./package.json" with { type: "json" };

const { values } = parseArgs({
  options: { target: { type: "string" }, outfile: { type: "string", default: "dist/agent" } },
  strict: true,
});

type Target = NonNullable<Extract<Bun.BuildConfig, { compile: unknown }>["compile"]>;

function hostTarget(): string {
  const loader = `/lib/ld-musl-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so.1`;
  const musl = process.platform === "linux" && existsSync(loader);
  return `bun-${process.platform === "win32" ? "windows" : process.platform}-${process.arch}${musl ? "-musl" : ""}`;
}

function commit(): string {
  const result = Bun.spawnSync(["git", "rev-parse", "--short=12", "HEAD"], {
    cwd: import.meta.dir,
    stderr: "ignore",
  });
  return result.exitCode === 0 ? result.stdout.toString().trim() : "unknown";
}

export async function build(target: string, outfile: string): Promise<void> {
  const result = await Bun.build({
    entrypoints: [`${import.meta.dir}/src/main.ts`],
    compile: {
      target,
      outfile,
      autoloadDotenv: false,
      autoloadBunfig: false,
    } as Target,
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
  if (!result.success) throw new AggregateError(result.logs, `Cannot build ${outfile}`);
}

if (import.meta.main) {
  const target = values.target ?? hostTarget();
  await build(target, values.outfile);
  process.stdout.write(`${values.outfile} (${packageJson.version}, ${target})\n`);
}
