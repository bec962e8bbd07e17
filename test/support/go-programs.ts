// Programs of others that tests and builds run, made from the Go module proxy with checksums that Go verifies, once into
// .cache: two ACME servers, a name server for one of them, and the maker of packages. Never shipped.

import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { runSync } from "./debian.ts";
import { withToolchain } from "./go-toolchain.ts";
import { moveUnlessThere } from "./packages.ts";

/** step-ca without the databases that it is not given. Its other tags do not build. */
const fewerParts = "nomysql,nopgx";

const programs = {
  pebble: { of: "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1", tags: "" },
  "pebble-challtestsrv": { of: "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.1", tags: "" },
  "step-ca": { of: "github.com/smallstep/certificates/cmd/step-ca@v0.30.2", tags: fewerParts },
  nfpm: { of: "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0", tags: "" },
} as const;

export type GoProgram = keyof typeof programs;
export const goPrograms = Object.keys(programs) as GoProgram[];

/** The path of the program. Builds it if it is missing, in a minute or two. Concurrent test runs are safe. */
export function goProgram(name: GoProgram): string {
  const { of, tags } = programs[name];
  const target = join(import.meta.dir, "../../.cache/go-programs", `${name}-${of.split("@")[1]}`);
  if (existsSync(join(target, name))) return join(target, name);
  const work = mkdtempSync(join(tmpdir(), "agent-go-"));
  mkdirSync(dirname(target), { recursive: true });
  const beside = mkdtempSync(join(dirname(target), "build-"));
  try {
    const settings = [`GOBIN=${beside}`, "GOFLAGS=-trimpath -modcacherw"];
    withToolchain(work)(["env", ...settings, "go", "install", "-tags", tags, "-ldflags", "-s -w", of], work);
    moveUnlessThere(beside, target);
  } finally {
    runSync(["chmod", "-R", "u+w", work]);
    for (const each of [work, beside]) rmSync(each, { recursive: true, force: true });
  }
  return join(target, name);
}
