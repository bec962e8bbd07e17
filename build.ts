// Builds the executable: `bun build.ts [--target bun-linux-x64] [--outfile PATH]`. Builds a signed release of all targets,
// with packages: `bun build.ts --release --secret-key FILE [--outdir DIR] [--no-packages]`. Builds an image of the
// control plane: `bun build.ts --image`, of a node: `bun build.ts --node-image [--engine FILE]`. Two builds of the same commit are byte-identical.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import * as v from "valibot";
import packageJson from "./package.json" with { type: "json" };
import { brand } from "./src/brand.ts";
import type { RepositoryKey } from "./packaging/repositories.ts";
import { parseDuration } from "./src/base/quantities.ts";
import { messageOf } from "./src/base/errors.ts";
import { signMachO } from "./src/release/mach-o.ts";
import { isVersion } from "./src/protocol/updates/version.ts";

type Target = NonNullable<Extract<Bun.BuildConfig, { compile: unknown }>["compile"]>;

/** All supported targets, by Bun's names. */
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
  // Look at the C library in use: the other one may be installed too.
  const musl = process.platform === "linux" && readFileSync("/proc/self/maps", "utf8").includes("/ld-musl-");
  return `bun-${process.platform === "win32" ? "windows" : process.platform}-${process.arch}${musl ? "-musl" : ""}`;
}

/** The commit of this checkout; "unknown" without git, or in a source archive inside another repository. */
function commit(): string {
  const git = Bun.which("git");
  if (git === null || !existsSync(join(import.meta.dir, ".git"))) return "unknown";
  const argv = [git, "rev-parse", "--short=12", "HEAD"];
  const result = Bun.spawnSync(argv, { cwd: import.meta.dir, stderr: "ignore" });
  return result.exitCode === 0 ? result.stdout.toString().trim() : "unknown";
}

/**
 * Two lazily loaded parts share tsyringe (of @peculiar/x509), so it has a chunk of its own, which runs before theirs. It
 * needs this polyfill first.
 */
const polyfillFirst: Bun.BunPlugin = {
  name: "polyfill first",
  setup(builder) {
    builder.onLoad({ filter: /tsyringe[\\/]dist[\\/]esm5[\\/]index\.js$/ }, async ({ path }) => ({
      contents: `import "reflect-metadata/lite";\n${await Bun.file(path).text()}`,
      loader: "js",
    }));
  },
};

/**
 * A command ends before the work of a JIT pays, so code must run 16 times as often before it is compiled. Control plane and
 * resolver go back to the usual policy; the daemon, which rests, waits longer still: compiled code was 2.5 MB of its 16 at rest,
 * and a third of its processor time. The other two keep the executable from obeying files of the current directory.
 */
export const compileFlags = { jitPolicy: 16, autoloadDotenv: false, autoloadBunfig: false };

type BuildOptions = {
  version?: string | undefined;
  releaseKeys?: readonly string[];
  /** For stack traces with source lines. Releases leave them out: they add 1.4 MB to the download. */
  sourceMaps?: boolean;
};

/**
 * Compiles src/main.ts for the target and renames the executable to `outfile`. Returns the path, with .exe if needed.
 */
export async function build(target: string, outfile: string, options: BuildOptions = {}): Promise<string> {
  const path = target.includes("windows") && !outfile.endsWith(".exe") ? `${outfile}.exe` : outfile;
  mkdirSync(dirname(resolve(path)), { recursive: true });
  // Bun leaves copies of the source maps beside the executable, so build in a temporary directory.
  const work = mkdtempSync(join(dirname(resolve(path)), ".build-"));
  try {
    const made = join(work, target.includes("windows") ? "agent.exe" : "agent");
    const result = await Bun.build({
      entrypoints: [join(import.meta.dir, "src/main.ts")],
      compile: { ...compileFlags, target, outfile: made } as Target,
      format: "esm",
      bytecode: true,
      splitting: true,
      plugins: [polyfillFirst],
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
    if (!result.success) throw new AggregateError(result.logs, `Cannot build ${basename(path)}`);
    if (target.includes("darwin")) writeFileSync(made, signMachO(readFileSync(made), brand.launchdLabel));
    renameSync(made, path);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return path;
}

/** Time of the commit in seconds; 0 without git. A reproducible release uses it as its date. */
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
  /** Compress in seconds instead of minutes. The downloads are a quarter larger. */
  fast: boolean;
  sequence: number;
  issuedAtS: number;
  expiresInS: number;
  releaseUrl: string;
  enginesFile: string | undefined;
  /** Also .deb and .rpm of the targets for Linux with glibc. Needs Go. */
  packages: boolean;
  /** Also repositories of the packages. */
  repositoryKey: RepositoryKey | undefined;
  /** Also what is uploaded beside, and checks. `former`: the directory of the release before this one. */
  publish: { former: string | undefined; allowDirty: boolean } | undefined;
};

/** Builds a signed release directory. Its executables trust the signing key. */
export async function release(options: ReleaseOptions): Promise<void> {
  if (options.publish !== undefined) {
    const { requirePublishable } = await import("./packaging/publish.ts");
    requirePublishable(options.version, options.publish);
  }
  const { readSecretKey, writePublicKey } = await import("./src/release/minisign.ts");
  const { packExecutable, writeRelease } = await import("./src/release/publish.ts");
  const { Manifest } = await import("./src/release/manifest.ts");
  const password = options.passwordFile && readFileSync(options.passwordFile, "utf8").trimEnd();
  const key = readSecretKey(readFileSync(options.keyFile, "utf8"), password);
  const { version, fast, outdir, issuedAtS, releaseUrl } = options;
  const edition = { version, timeS: issuedAtS, fast, releaseUrl };
  const packages: string[] = [];
  rmSync(outdir, { recursive: true, force: true });
  mkdirSync(outdir, { recursive: true });
  const work = mkdtempSync(join(resolve(outdir), ".work-"));
  const pack = async (target: string) => {
    const releaseKeys = [writePublicKey(key)];
    const path = await build(target, join(work, target), { version, releaseKeys, sourceMaps: false });
    const artifact = await packExecutable(outdir, readFileSync(path), target, { version, fast });
    if (options.packages) {
      const { makePackages } = await import("./packaging/packages.ts");
      packages.push(...(await makePackages(outdir, path, target, edition)));
    }
    rmSync(path);
    for (const { file, size } of artifact.zst === undefined ? [artifact] : [artifact, artifact.zst])
      process.stdout.write(`${file} ${(size / 1e6).toFixed(1)} MB\n`);
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
  const { finishPublication, sbomName, sbomOf } = await import("./packaging/publish.ts");
  const lock = readFileSync(join(import.meta.dir, "bun.lock"), "utf8");
  if (options.publish !== undefined) writeFileSync(join(outdir, sbomName), sbomOf(lock, version, issuedAtS));
  const beside = options.publish === undefined ? [] : [sbomName];
  writeRelease(outdir, head, key, options.releaseUrl, [...packages, ...beside].sort());
  if (options.repositoryKey !== undefined) {
    const { makeRepositories } = await import("./packaging/repositories.ts");
    makeRepositories(outdir, packages, issuedAtS, options.repositoryKey);
  }
  if (options.publish === undefined) return;
  const { former } = options.publish;
  finishPublication({ outdir, version, publicKey: writePublicKey(key), former, isQuick: fast });
}

/** Runs two at a time: compression uses one processor and up to 1 GB of memory. */
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

/** An image for this machine's processor. `engine`: of a node; without it, of the control plane. */
async function image(version: string, engine?: string): Promise<void> {
  const { controlImage, makeImage, nodeImage } = await import("./packaging/image.ts");
  if (engine !== undefined && !existsSync(engine))
    throw new Error(`There is no engine at ${engine}: apt install nebula, or give --engine FILE`);
  const executable = await build(hostTarget(), `dist/.image-${process.pid}`, { version, sourceMaps: false });
  try {
    const made = engine === undefined ? controlImage(executable) : nodeImage(executable, engine);
    const outfile = `dist/${made.name}.tar`;
    makeImage(outfile, made, { version, timeS: commitTime() });
    process.stdout.write(`${outfile} (${version})\n`);
  } finally {
    rmSync(executable, { force: true });
  }
}

const usage = `Builds the executable, a signed release, or an image.

  bun build.ts [--target TARGET] [--outfile FILE] [--version V]
  bun build.ts --release --secret-key FILE [--release-url URL] [flags]
  bun build.ts --publish --secret-key FILE [--former DIR] [flags]
  bun build.ts --image | --node-image [--engine FILE] [--version V]

  --target TARGET      one of ${targets.join(", ")};
                       with --release, may be given several times (default: all)
  --outfile FILE       the executable (default dist/agent)
  --version V          three numbers such as 1.2.3 (default: ${packageJson.version}, from package.json)

Of a release:
  --secret-key FILE    the publisher's key, made with: minisign -G
  --secret-key-password-file FILE
  --release-url URL    where the release will be: https://… or a directory. Installer and packages keep it for updates
                       (default ${brand.releaseUrl})
  --outdir DIR         default dist/release; replaced as a whole
  --sequence N         number that rises with each release (default: the time of the commit)
  --issued-at TIME     such as 2026-01-31T00:00:00Z (default: the time of the commit)
  --expires-in D       from --issued-at, such as 90d (default 90d)
  --engines FILE       JSON list of engines that nodes may install
  --no-packages        no .deb and .rpm
  --packages-key FILE  also repositories of the packages for apt and dnf, signed by this OpenPGP key, made with:
                       gpg --export-secret-keys
  --packages-key-password-file FILE
  --fast               compress in seconds instead of minutes

--publish is --release with a list of components (sbom.cdx.json), NOTES.md from CHANGELOG.md, and checks: minisign, SHA256SUMS,
an installation in a bare Debian tree, and the commands of the README (not with --fast). Needs root on Debian.

  --former DIR         the release before this one: a machine that has it must update to this one
  --allow-dirty        also with changes that are not committed, for a try
`;

const readFlags = (argv: readonly string[]) =>
  parseArgs({
    args: [...argv],
    options: {
      help: { type: "boolean", short: "h", default: false },
      target: { type: "string", multiple: true },
      outfile: { type: "string", default: "dist/agent" },
      version: { type: "string", default: packageJson.version },
      release: { type: "boolean", default: false },
      publish: { type: "boolean", default: false },
      former: { type: "string" },
      "allow-dirty": { type: "boolean", default: false },
      outdir: { type: "string", default: "dist/release" },
      "secret-key": { type: "string" },
      "secret-key-password-file": { type: "string" },
      fast: { type: "boolean", default: false },
      sequence: { type: "string" },
      "issued-at": { type: "string" },
      "expires-in": { type: "string", default: "90d" },
      "release-url": { type: "string", default: brand.releaseUrl },
      engines: { type: "string" },
      packages: { type: "boolean", default: true },
      "packages-key": { type: "string" },
      "packages-key-password-file": { type: "string" },
      image: { type: "boolean", default: false },
      "node-image": { type: "boolean", default: false },
      engine: { type: "string", default: "/usr/bin/nebula" },
    },
    strict: true,
    allowNegative: true,
  }).values;
type Flags = ReturnType<typeof readFlags>;

async function main(argv: readonly string[]): Promise<void> {
  const values = readFlags(argv);
  if (values.help) return void process.stdout.write(usage);
  const chosen = values.target ?? (values.release || values.publish ? [...targets] : [hostTarget()]);
  const unknown = chosen.find((target) => !targets.some((each) => each === target));
  if (unknown !== undefined) throw new Error(`Unknown target "${unknown}". Use one of ${targets.join(", ")}`);
  if (!isVersion(values.version))
    throw new Error(`--version must be three numbers such as 1.2.3, not "${values.version}"`);
  if (values.image) return image(values.version);
  if (values["node-image"]) return image(values.version, values.engine);
  if (!values.release && !values.publish) {
    const outfile = await build(chosen[0] ?? "", values.outfile, { version: values.version });
    process.stdout.write(`${outfile} (${values.version}, ${chosen[0]})\n`);
    return;
  }
  await release(releaseOptions(values, chosen));
}

function releaseOptions(values: Flags, chosen: readonly string[]): ReleaseOptions {
  if (values["secret-key"] === undefined)
    throw new Error("--release needs --secret-key FILE. Create a key with: minisign -G");
  const packagesKey = values["packages-key"];
  if (packagesKey !== undefined && !values.packages)
    throw new Error("--packages-key needs packages: leave out --no-packages");
  const issuedAtS = values["issued-at"] === undefined ? commitTime() : Date.parse(values["issued-at"]) / 1000;
  const expiresInS = parseDuration(values["expires-in"]) ?? 0;
  const sequence = values.sequence === undefined ? issuedAtS : Number(values.sequence);
  if (!(issuedAtS > 0) || expiresInS === 0)
    throw new Error(
      "--issued-at needs a time such as 2026-01-31T00:00:00Z, --expires-in a duration such as 90d",
    );
  if (!Number.isSafeInteger(sequence) || sequence < 1)
    throw new Error(`--sequence must be a whole number from 1 on, not "${values.sequence}"`);
  if (
    !/^(https:\/\/[^\s/]+|http:\/\/(127\.0\.0\.1|localhost|\[::1\]):\d+)?\/\S*$/.test(values["release-url"])
  )
    throw new Error(
      `--release-url must be an https:// address or a directory, not "${values["release-url"]}"`,
    );
  return {
    outdir: values.outdir,
    keyFile: values["secret-key"],
    passwordFile: values["secret-key-password-file"],
    targets: chosen,
    version: values.version,
    fast: values.fast,
    sequence,
    issuedAtS,
    expiresInS,
    releaseUrl: values["release-url"],
    enginesFile: values.engines,
    packages: values.packages,
    publish: values.publish ? { former: values.former, allowDirty: values["allow-dirty"] } : undefined,
    repositoryKey:
      packagesKey === undefined
        ? undefined
        : {
            keyFile: packagesKey,
            passwordFile: values["packages-key-password-file"],
          },
  };
}

if (import.meta.main) {
  try {
    await main(process.argv.slice(2));
  } catch (error) {
    process.stderr.write(`build: ${messageOf(error)}\n`);
    process.exitCode = 1;
  }
}
