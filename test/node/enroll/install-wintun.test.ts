// The Wintun library: only the file with the pinned hash is installed, from any source, where the engine looks for it.

import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../src/base/errors.ts";
import { brand } from "../../../src/brand.ts";
import { installWintun, planWintun, removeWintun } from "../../../src/node/enroll/install-wintun.ts";
import { wintunFor } from "../../../src/platform/windows/wintun.ts";
import { realSystem } from "../../../src/base/system.ts";
import { inCi, installMissing, runSync } from "../../support/debian.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { sha256Hex } from "../../../src/base/sha256.ts";

const system = { ...realSystem(), platform: "win32" as const, arch: "x64" };
const none = { version: undefined, releaseUrl: undefined, file: undefined };
const member = "dist/windows/wintun/bin/amd64/wintun.dll";
const bsdtar = "/usr/bin/bsdtar";
const missing = installMissing([bsdtar]);
if (missing !== undefined && inCi) throw new Error(missing);
const archiveTest = test.skipIf(missing !== undefined);

/** An archive like the engine's, with this library in it. */
function makeArchive(directory: string, library: string): string {
  const release = join(directory, "release");
  mkdirSync(join(release, "dist/windows/wintun/bin/amd64"), { recursive: true });
  writeFileSync(join(release, member), library);
  writeFileSync(join(release, "nebula.exe"), "MZ");
  const archive = join(release, "nebula-windows-amd64.zip");
  runSync([bsdtar, "--format=zip", "-cf", archive, "-C", release, "dist", "nebula.exe"]);
  return archive;
}

function placesIn(directory: string) {
  return {
    configRoot: directory,
    overlayBinary: join(directory, "programs/overlay"),
    stateDb: join(directory, "state.db"),
  };
}

async function codeOf(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  return error instanceof AppError ? error.message : String(error);
}

test("path and hash match the engine's source", () => {
  const amd64 = wintunFor("x64", "C:\\Program Files\\overlay-agent\\overlay.exe");
  expect(amd64).toEqual({
    member,
    path: "C:\\Program Files\\overlay-agent\\dist\\windows\\wintun\\bin\\amd64\\wintun.dll",
    sha256: "e5da8447dc2c320edc0fc52fa01885c103de8c118481f683643cacc3220dafce",
  });
  expect(wintunFor("arm64", "/x/overlay").path).toBe("/x/dist/windows/wintun/bin/arm64/wintun.dll");
  expect(() => wintunFor("ia32", "/x/overlay")).toThrow("ia32");
});

archiveTest("another library in an archive or file is refused, and nothing is written", async () => {
  using directory = temporaryDirectory();
  const places = placesIn(directory.path);
  const file = makeArchive(directory.path, "somebody's own");
  const library = join(directory.path, "wintun.dll");
  writeFileSync(library, "somebody's own");
  for (const request of [
    { ...none, file },
    { ...none, file: library },
    { ...none, version: "1.11.0", releaseUrl: join(directory.path, "release") },
  ])
    expect(await codeOf(installWintun(request, places, system))).toContain("has the SHA-256");
  expect(existsSync(wintunFor("x64", places.overlayBinary).path)).toBe(false);
});

archiveTest(
  "the pinned library is installed once from release, archive or file, and removed again",
  async () => {
    using directory = temporaryDirectory();
    const places = placesIn(directory.path);
    const file = makeArchive(directory.path, "the library");
    const release = { ...none, version: "1.11.0", releaseUrl: join(directory.path, "release") };
    const wintun = {
      ...wintunFor("x64", places.overlayBinary),
      sha256: sha256Hex(Buffer.from("the library")),
    };
    const single = join(directory.path, "release", member);
    for (const request of [release, { ...none, file }, { ...none, file: single }]) {
      expect(await installWintun(request, places, system, wintun)).toEqual({
        path: wintun.path,
        changed: true,
      });
      expect(readFileSync(wintun.path, "utf8")).toBe("the library");
      // Already installed: no source is read.
      expect(await installWintun({ ...none, file: "/nowhere" }, places, system, wintun)).toMatchObject({
        changed: false,
      });
      removeWintun(places, system);
      expect(existsSync(wintun.path)).toBe(false);
    }
  },
);

test("a plan names the request and the file, and works on any machine", () => {
  using directory = temporaryDirectory();
  const places = placesIn(directory.path);
  const [request, file] = planWintun({ ...none, version: "1.11.0" }, places, system);
  expect(request).toMatchObject({
    step: "request",
    url: expect.stringMatching(/1\.11\.0\/nebula-windows-amd64\.zip$/),
  });
  expect(file).toMatchObject({ step: "file", change: "created" });
  // Without a version, the plan first asks for the newest one.
  const [newest, archive] = planWintun(none, places, system);
  expect(newest).toMatchObject({ url: brand.engineLatestUrl });
  expect(archive).toMatchObject({ url: expect.stringContaining("/v{version}/") });
  expect(planWintun("remove", places, system)).toEqual([]);
});
