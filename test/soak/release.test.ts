// A whole release, for every target: each archive holds an executable of its system, the real minisign verifies it, the
// download is small, and a second run makes the same bytes. Bun downloads a runtime of 100 MB for each target.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import { targets } from "../../build.ts";
import { runSync } from "../support/debian.ts";
import { makeSignedRelease } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const work = temporaryDirectory();
afterAll(() => work[Symbol.dispose]());
const at = (...names: string[]) => join(work.path, ...names);
const magic: Record<string, string> = { linux: "7f454c46", darwin: "cffaedfe", windows: "4d5a" };
const archiveOf = (target: string) =>
  readdirSync(at("first")).find((name) => name.endsWith(`-${target.replace("bun-", "")}.tar.zst`)) ?? "none";

beforeAll(() => {
  mkdirSync(at("keys"));
  makeSignedRelease({ keys: at("keys"), outdir: at("made"), targets, fast: false });
  renameSync(at("made"), at("first"));
}, 3_600_000);

for (const target of targets) {
  test(`has an executable for ${target}`, () => {
    const name = target.includes("windows") ? "agent.exe" : "agent";
    runSync(["tar", "--zstd", "-xf", at("first", archiveOf(target)), "-C", work.path, name]);
    const wanted = magic[target.split("-")[1] ?? ""] ?? "none";
    expect(readFileSync(at(name)).toString("hex", 0, wanted.length / 2)).toBe(wanted);
  }, 60_000);
}

test("the download for linux x64 is at most 48 MB", () => {
  const { size } = Bun.file(at("first", archiveOf("bun-linux-x64")));
  process.stderr.write(`linux x64: ${(size / 1e6).toFixed(1)} MB\n`);
  expect(size).toBeLessThan(48e6);
});

test("minisign and sha256sum find nothing wrong", () => {
  runSync(["minisign", "-V", "-p", at("keys/minisign.pub"), "-m", at("first/manifest.json")]);
  runSync(["sha256sum", "-c", "--strict", "SHA256SUMS"], { cwd: at("first") });
});

test("made again, it is the same byte for byte", () => {
  makeSignedRelease({ keys: at("keys"), outdir: at("made"), targets, fast: false });
  runSync(["diff", "-r", at("first"), at("made")]);
}, 3_600_000);
