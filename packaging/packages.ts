// Makes .deb and .rpm of a built executable with nfpm, which is built from the Go module proxy. Two runs on the same commit
// give the same bytes.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brand } from "../src/brand.ts";
import { goProgram } from "../test/support/go-programs.ts";
import { maintainer, sharedFiles, summary, type Edition } from "./files.ts";
import { debScripts, rpmScripts } from "./scripts.ts";

const architectures = { "bun-linux-x64": "amd64", "bun-linux-arm64": "arm64" } as const;

/** Writes both packages of the executable into `outdir`. Returns their names. */
export async function makePackages(
  outdir: string,
  executable: string,
  target: string,
  edition: Edition,
): Promise<string[]> {
  const [, arch] = Object.entries(architectures).find(([name]) => name === target) ?? [];
  if (arch === undefined) return [];
  mkdirSync(outdir, { recursive: true });
  const work = mkdtempSync(join(outdir, ".package-"));
  try {
    const files = await sharedFiles(edition);
    const contents = [
      { src: executable, dst: `/usr/bin/${brand.executable}`, mode: 0o755 },
      ...files.map(({ dst, content }, at) => {
        const src = join(work, String(at));
        writeFileSync(src, content);
        return { src, dst, mode: 0o644 };
      }),
    ];
    return (["deb", "rpm"] as const).map((kind) => pack(kind, outdir, work, arch, contents, edition));
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

type Content = { src: string; dst: string; mode: number };

/** Of one kind of package alone. */
const onlyIn = { deb: /vendor-completions|changelog\.Debian|lintian/, rpm: /site-functions/ } as const;

function pack(
  kind: "deb" | "rpm",
  outdir: string,
  work: string,
  arch: string,
  contents: readonly Content[],
  { version, timeS, fast = false }: Edition,
): string {
  const scripts = Object.entries(kind === "deb" ? debScripts() : rpmScripts()).map(([name, text]) => {
    const path = join(work, `${kind}-${name}`);
    writeFileSync(path, text);
    return [name, path];
  });
  const other = onlyIn[kind === "deb" ? "rpm" : "deb"];
  const mtime = new Date(timeS * 1000).toISOString();
  const config = {
    name: brand.id,
    arch,
    platform: "linux",
    version,
    release: "1",
    section: "net",
    priority: "optional",
    maintainer,
    description: `${summary}\n${description}`,
    homepage: "https://github.com/overlay-agent/agent",
    // A field that Debian does not know.
    ...(kind === "rpm" ? { license: "MIT" } : {}),
    mtime,
    umask: 0o022,
    depends: kind === "deb" ? ["libc6 (>= 2.17)"] : ["glibc >= 2.17"],
    recommends: ["ca-certificates"],
    scripts: Object.fromEntries(scripts),
    contents: contents
      .filter(({ dst }) => !other.test(dst))
      .map(({ src, dst, mode }) => ({ src, dst, file_info: { mode, mtime, owner: "root", group: "root" } })),
    deb: { compression: fast ? "none" : "gzip" },
    rpm: { compression: fast ? "gzip:1" : "gzip", buildhost: "localhost", summary },
  };
  const file = join(work, `${kind}.json`);
  // JSON is YAML.
  writeFileSync(file, JSON.stringify(config));
  const name = `${brand.id}_${version}_${arch}.${kind}`;
  const argv = [
    goProgram("nfpm"),
    "package",
    "--config",
    file,
    "--packager",
    kind,
    "--target",
    join(outdir, name),
  ];
  const made = Bun.spawnSync(argv, {
    env: { PATH: process.env["PATH"] ?? "", SOURCE_DATE_EPOCH: String(timeS) },
    stdin: "ignore",
    stderr: "pipe",
  });
  if (made.exitCode !== 0)
    throw new Error(`nfpm cannot make ${name}: ${made.stdout.toString()}${made.stderr.toString()}`);
  return name;
}

const description = `One program that manages the nodes of private Nebula networks: command line,
daemon and control plane. It registers machines, keeps their configuration
and certificates current, and revokes them within seconds.`;
