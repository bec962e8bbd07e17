// A real release for one target: signed and verified by the real minisign, byte-identical when built twice, installed
// by its own script, and used.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import packageJson from "../../package.json" with { type: "json" };
import { hostTarget } from "../../build.ts";
import { cleanEnvironment } from "../support/agent.ts";
import { inCi, installMissing, runSync } from "../support/debian.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeSignedRelease } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const missing = installMissing(["/usr/bin/minisign", "/usr/bin/zstd"]);
if (missing !== undefined && inCi) throw new Error(missing);
const { version } = packageJson;

describe.skipIf(missing !== undefined)("a release", () => {
  const work = temporaryDirectory();
  afterAll(() => work[Symbol.dispose]());
  const at = (...names: string[]) => join(work.path, ...names);
  const installed = at("prefix/bin/agent");

  beforeAll(() => {
    mkdirSync(at("keys"));
    for (const outdir of ["one", "two"]) {
      makeSignedRelease({ keys: at("keys"), outdir: at(outdir), targets: [hostTarget()], fast: true });
    }
  }, 240_000);

  test("contains what its manifest says, and the real minisign and sha256sum accept it", () => {
    const archives = ["gz", "zst"].map(
      (suffix) => `agent-${version}-${hostTarget().replace("bun-", "")}.tar.${suffix}`,
    );
    const files = [...archives, "SHA256SUMS", "install", "manifest.json", "manifest.json.minisig"];
    expect(readdirSync(at("one")).sort()).toEqual(files.sort());
    runSync(["minisign", "-V", "-p", at("keys/minisign.pub"), "-m", at("one/manifest.json")]);
    expect(runSync(["sha256sum", "-c", "SHA256SUMS"], { cwd: at("one") }).match(/: OK$/gm)).toHaveLength(5);
    const listing = /^-rwxr-xr-x root\/root +\d+ 1970-01-01 00:00 agent\n$/;
    for (const archive of archives) expect(runSync(["tar", "-tvf", at("one", archive)])).toMatch(listing);
  });

  test("is byte-identical when built again", () => {
    for (const name of readdirSync(at("one"))) {
      // The install script contains the path of its directory.
      const text = (outdir: string) =>
        readFileSync(at(outdir, name)).toString("latin1").replaceAll(at(outdir), "");
      if (name !== "SHA256SUMS") expect(text("one") === text("two"), name).toBe(true);
    }
  });

  test("installs by its own script, and is up to date then", () => {
    runSync(["sh", at("one/install"), "--prefix", at("prefix"), "--no-service"]);
    expect(runSync([installed, "version", "--no-check"])).toStartWith(`agent ${version} (${hostTarget()}`);
    const state = ["--state-db-path", at("state/state.db")];
    expect(runSync([installed, "self-update", "--check", "--release-url", at("two"), ...state])).toContain(
      "is the latest release",
    );
    // The address came with the installation.
    expect(runSync([installed, "self-update", "--check", ...state])).toContain("is the latest release");
    const { update } = v.parse(
      v.object({ update: v.object({ available: v.boolean(), latest: v.string() }) }),
      JSON.parse(runSync([installed, "version", "--json", ...state])),
    );
    expect(update).toEqual({ available: false, latest: version });
  });

  asRoot("installed", () => {
    describeEngines("runs", ({ nebula }) => {
      test("the demo", async () => {
        const argv = [installed, "demo", "--json", "--overlay-binary", nebula];
        const child = Bun.spawn(argv, { env: cleanEnvironment(), stdin: "ignore", stderr: "ignore" });
        const said: unknown = JSON.parse(await new Response(child.stdout).text());
        expect(v.is(v.object({ first_ping_ms: v.number() }), said)).toBe(true);
        expect(await child.exited).toBe(0);
      }, 120_000);
    });
  });
});
