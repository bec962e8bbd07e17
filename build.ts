// Builds the executable: `bun build.ts [--target bun-linux-x64] [--outfile PATH]`, or a signed release of all targets:
// `bun build.ts --release --secret-key FILE [--outdir DIR]`. Two builds of one commit are byte-identical.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import * as v from "valibot";
import packageJson from "./package.json" with { type: "json" };
import { brand } from "./src/brand.ts";
import { parseDuration } from "./src/duration.ts";
import { messageOf } from "./src/errors.ts";
import { signMachO } from "./src/release/mach-o.ts";

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
  // The C library that this program runs on; another one may be installed beside it.
  const musl = process.platform === "linux" && readFileSync("/proc/self/maps", "utf8").includes("/ld-musl-");
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

type BuildOptions = {
  version?: string | undefined;
  releaseKeys?: readonly string[];
  /** Stack traces then name our lines. It is 1.4 MB of a download, so that releases go without. */
  sourceMaps?: boolean;
};

/** Compiles src/main.ts for the target and puts the executable at `outfile` by rename; its path. */
export async function build(target: string, outfile: string, options: BuildOptions = {}): Promise<string> {
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
      sourcemap: options.sourceMaps === false ? "none" : "linked",
      define: {
        BUILD_VERSION: JSON.stringify(options.version ?? packageJson.version),
        BUILD_COMMIT: JSON.stringify(commit()),
        BUILD_TARGET: JSON.stringify(target),
        BUILD_RELEASE_KEYS: JSON.stringify(options.releaseKeys ?? []),
        "process.env.NODE_ENV": '"production"',
      },
    });
    if (!result.success) throw new AggregateError(result.logs, `Cannot build ${basename(wanted)}`);
    if (target.includes("darwin")) writeFileSync(made, signMachO(readFileSync(made), brand.launchdLabel));
    renameSync(made, wanted);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return wanted;
}

/** When the commit was made, in seconds; 0 without git. What a reproducible release takes for "now". */
function commitTime(): number {
  const git = Bun.which("git");
  if (git === null) return 0;
  const result = Bun.spawnSync([git, "log", "-1", "--format=%ct"], {
    cwd: import.meta.dir,
    stderr: "ignore",
  });
  return Number(result.stdout.toString().trim());
}

type ReleaseOptions = {
  outdir: string;
  keyFile: string;
  passwordFile: string | undefined;
  targets: readonly string[];
  version: string;
  /** Preset of xz(1); 9e is smallest and takes a minute a target. */
  level: string;
  sequence: number;
  issuedAtS: number;
  expiresInS: number;
  releaseUrl: string;
  enginesFile: string | undefined;
};

/** A release directory (decisions 9), signed, with the signing key compiled into its executables. */
export async function release(options: ReleaseOptions): Promise<void> {
  const { readSecretKey, writePublicKey } = await import("./src/release/minisign.ts");
  const { packExecutable, writeRelease } = await import("./src/release/publish.ts");
  const { Manifest } = await import("./src/release/manifest.ts");
  const password = options.passwordFile && readFileSync(options.passwordFile, "utf8").trimEnd();
  const key = readSecretKey(readFileSync(options.keyFile, "utf8"), password);
  const { version, level, outdir } = options;
  rmSync(outdir, { recursive: true, force: true });
  mkdirSync(outdir, { recursive: true });
  const work = mkdtempSync(join(resolve(outdir), ".work-"));
  const pack = async (target: string) => {
    const releaseKeys = [writePublicKey(key)];
    const path = await build(target, join(work, target), { version, releaseKeys, sourceMaps: false });
    const { artifact, content } = await packExecutable(readFileSync(path), target, { version, level });
    rmSync(path);
    writeFileSync(join(outdir, artifact.file), content);
    process.stdout.write(`${artifact.file} ${(artifact.size / 1e6).toFixed(1)} MB\n`);
    return artifact;
  };
  const artifacts = await inPairs(options.targets, pack);
  rmSync(work, { recursive: true });
  const time = (seconds: number) => `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`;
  const engines = options.enginesFile ? JSON.parse(readFileSync(options.enginesFile, "utf8")) : [];
  const head = {
    sequence: options.sequence,
    issued_at: time(options.issuedAtS),
    expires_at: time(options.issuedAtS + options.expiresInS),
    version,
    artifacts,
    engines: v.parse(Manifest.entries.engines, engines),
  };
  const template = readFileSync(join(import.meta.dir, "install"), "utf8");
  writeRelease(outdir, head, key, { template, releaseUrl: options.releaseUrl });
}

/** Two at a time: packing keeps one processor and 700 MB busy. */
async function inPairs<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  const rest = [...items.entries()];
  const worker = async () => {
    for (let next = rest.shift(); next !== undefined; next = rest.shift())
      results[next[0]] = await work(next[1]);
  };
  await Promise.all([worker(), worker()]);
  return results;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      target: { type: "string", multiple: true },
      outfile: { type: "string", default: "dist/agent" },
      version: { type: "string", default: packageJson.version },
      release: { type: "boolean", default: false },
      outdir: { type: "string", default: "dist/release" },
      "secret-key": { type: "string" },
      "secret-key-password-file": { type: "string" },
      level: { type: "string", default: "9e" },
      sequence: { type: "string" },
      "issued-at": { type: "string" },
      "expires-in": { type: "string", default: "90d" },
      "release-url": { type: "string", default: brand.releaseUrl },
      engines: { type: "string" },
    },
    strict: true,
  });
  const wanted = values.target ?? (values.release ? [...targets] : [hostTarget()]);
  const unknown = wanted.find((target) => !targets.some((each) => each === target));
  if (unknown !== undefined) throw new Error(`No target "${unknown}"; there are ${targets.join(", ")}`);
  if (!values.release) {
    const outfile = await build(wanted[0] ?? "", values.outfile, { version: values.version });
    process.stdout.write(`${outfile} (${values.version}, ${wanted[0]})\n`);
    return;
  }
  if (values["secret-key"] === undefined) throw new Error("--release needs --secret-key FILE (minisign -G)");
  const issuedAtS = values["issued-at"] === undefined ? commitTime() : Date.parse(values["issued-at"]) / 1000;
  const expiresInS = parseDuration(values["expires-in"]);
  if (!(issuedAtS > 0) || expiresInS === undefined)
    throw new Error("--issued-at T or --expires-in D is not valid");
  await release({
    outdir: values.outdir,
    keyFile: values["secret-key"],
    passwordFile: values["secret-key-password-file"],
    targets: wanted,
    version: values.version,
    level: values.level,
    sequence: values.sequence === undefined ? issuedAtS : Number(values.sequence),
    issuedAtS,
    expiresInS,
    releaseUrl: values["release-url"],
    enginesFile: values.engines,
  });
}

if (import.meta.main) {
  try {
    await main();
  } catch (error) {
    process.stderr.write(`build: ${messageOf(error)}\n`);
    process.exitCode = 1;
  }
}
