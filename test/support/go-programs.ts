// Programs of others that tests and builds run, made from the Go module proxy with checksums that Go verifies, once for
// all checkouts: two ACME servers, a name server for one of them, and the maker of packages. Never shipped.

import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { cacheDirectory } from "./cache.ts";
import { runSync } from "./debian.ts";
import { downloaded, withToolchain } from "./go-toolchain.ts";
import { moveUnlessThere } from "./packages.ts";

const pebble = "github.com/letsencrypt/pebble/v2@v2.10.1";

type Recipe = {
  module: string;
  tags?: string;
  /** Imports of the main file that are left out. */
  without?: RegExp;
  /** The package of the program, if it is not the one of its name below `cmd`. */
  main?: string;
  /** A Go file of ours that becomes the main file. */
  ours?: string;
  /** GOEXPERIMENT */
  experiment?: string;
  /** Its go.mod lacks lines that the build needs. */
  completes?: true;
};

const programs = {
  pebble: { module: pebble },
  "pebble-challtestsrv": { module: pebble },
  // Without the databases and key stores of clouds, which are two thirds of what it compiles. Its other tags do not build.
  "step-ca": {
    module: "github.com/smallstep/certificates@v0.30.2",
    tags: "nomysql,nopgx",
    without: /^\t_ ".*\/(kms\/(?!softkms)|cas\/(?!softcas)).*"\n/gm,
  },
  nfpm: { module: "github.com/goreleaser/nfpm/v2@v2.45.0" },
} as const satisfies Record<string, Recipe>;
type TestProgram = keyof typeof programs;
export const goPrograms = Object.keys(programs) as TestProgram[];

/** The newest whose modules the proxy has; its JSON library does not build with that of Go 1.27. */
const tailscale = { module: "tailscale.com@v1.94.2", experiment: "nojsonv2" };
/** What others run, for benches alone. */
const rivals = {
  tailscaled: tailscale,
  tailscale,
  tailnet: { ...tailscale, ours: join(import.meta.dir, "../bench/tailnet.go") },
  headscale: { module: "github.com/juanfont/headscale@v0.26.1", completes: true },
  "wireguard-go": { module: "golang.zx2c4.com/wireguard@v0.0.0-20260522210424-ecfc5a8d5446", main: "." },
} as const satisfies Record<string, Recipe>;

export type GoProgram = TestProgram | keyof typeof rivals;

/** The path of the program. Builds it if it is missing, in a minute or two. Concurrent test runs are safe. */
export function goProgram(name: GoProgram): string {
  const recipe: Recipe = { ...programs, ...rivals }[name];
  const { module, ours } = recipe;
  const own = ours === undefined ? "" : `-${Bun.hash(readFileSync(ours)).toString(36)}`;
  const target = join(cacheDirectory, "go-programs", `${name}-${module.split("@")[1]}${own}`);
  if (existsSync(join(target, name))) return join(target, name);
  const work = mkdtempSync(join(tmpdir(), "agent-go-"));
  mkdirSync(dirname(target), { recursive: true });
  const beside = mkdtempSync(join(dirname(target), "build-"));
  try {
    build(name, recipe, work, join(beside, name));
    chmodSync(beside, 0o755);
    moveUnlessThere(beside, target);
  } finally {
    runSync(["chmod", "-R", "u+w", work]);
    for (const each of [work, beside]) rmSync(each, { recursive: true, force: true });
  }
  return join(target, name);
}

function build(name: string, recipe: Recipe, work: string, to: string): void {
  const { module, tags = "", without, main: path = `./cmd/${name}`, ours, experiment, completes } = recipe;
  const run = withToolchain(work);
  const source = join(work, "source");
  cpSync(downloaded(module, work, run), source, { recursive: true });
  run(["chmod", "-R", "u+w", source], work);
  if (without !== undefined) {
    const main = join(source, `cmd/${name}/main.go`);
    writeFileSync(main, readFileSync(main, "utf8").replace(without, ""));
  }
  if (ours !== undefined) {
    mkdirSync(join(source, "cmd", name));
    cpSync(ours, join(source, "cmd", name, "main.go"));
  }
  const environment = [
    ...(experiment === undefined ? [] : [`GOEXPERIMENT=${experiment}`]),
    ...(completes === true ? ["GOFLAGS=-mod=mod"] : []),
  ];
  run(
    ["env", ...environment, "go", "build", "-trimpath", "-tags", tags, "-ldflags", "-s -w", "-o", to, path],
    source,
  );
}
