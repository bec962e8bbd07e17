// Releases for tests. Packs, lists and signs any given executable as the build does.

import { createPrivateKey, createPublicKey, randomBytes } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { build, hostTarget } from "../../build.ts";
import { isOlderThanSources, root } from "./agent.ts";
import { runSync } from "./debian.ts";
import type { Manifest } from "../../src/release/manifest.ts";
import { writePublicKey, type SecretKey } from "../../src/release/minisign.ts";
import { packExecutable, writeRelease } from "../../src/release/publish.ts";

/** The earliest commit whose agents and servers must work with those of today, and update themselves to them. */
export const formerCommit = "559ec55";

/** A signing key. The same seed gives the same key. */
export function makeReleaseKey(seed = randomBytes(32)): SecretKey & { text: string } {
  const der = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]);
  const publicKey = createPublicKey(createPrivateKey({ key: der, format: "der", type: "pkcs8" }));
  const raw = publicKey.export({ format: "der", type: "spki" }).subarray(-32);
  const key = { id: raw.subarray(0, 8), seed, key: raw };
  return { ...key, text: writePublicKey(key) };
}

export type TestRelease = {
  version: string;
  sequence?: number;
  /** Target → executable. */
  executables: Record<string, Uint8Array>;
  expiresAt?: string;
  /** Archives of the engine: none are made. */
  engines?: Manifest["engines"];
  /** What the install script downloads from (default: the directory itself). */
  releaseUrl?: string;
};

/** Creates the release directory. `more`: files in it that are listed in SHA256SUMS. */
export async function makeRelease(
  directory: string,
  release: TestRelease,
  key: SecretKey,
  more: readonly string[] = [],
): Promise<void> {
  mkdirSync(directory, { recursive: true });
  const { version } = release;
  const artifacts = [];
  for (const [target, executable] of Object.entries(release.executables)) {
    artifacts.push(await packExecutable(directory, executable, target, { version, fast: true }));
  }
  const head = {
    sequence: release.sequence ?? 1,
    issued_at: "2026-01-01T00:00:00Z",
    expires_at: release.expiresAt ?? "2100-01-01T00:00:00Z",
    version,
    artifacts,
    engines: release.engines ?? [],
  };
  writeRelease(directory, head, key, release.releaseUrl ?? directory, more);
}

/** What the agents of `buildVersion` and the former one trust. Fixed, because they are built once for several test files. */
export const releaseKey = makeReleaseKey(Buffer.alloc(32, formerCommit));

/** An agent of this version that trusts releases signed by `releaseKey`, in the directory. Several test files share its build. */
export function buildVersion(directory: string, version: string): string {
  // One builds it, and the others wait for that.
  mkdirSync(join(root, "dist"), { recursive: true });
  const lock = join(root, `dist/.agent-${version}.lock`);
  const [place = ""] = runSync(["flock", lock, process.execPath, import.meta.path, version]).split("\n");
  const path = join(directory, `agent-${version}`);
  copyFileSync(place, path);
  return path;
}

async function buildShared(version: string): Promise<string> {
  const path = join(root, `dist/agent-${version}`);
  if (isOlderThanSources(path)) {
    const beside = join(root, `dist/.agent-${version}-${process.pid}`);
    renameSync(await build(hostTarget(), beside, { version, releaseKeys: [releaseKey.text] }), path);
  }
  return path;
}

if (import.meta.main) process.stdout.write(`${await buildShared(process.argv[2] ?? "")}\n`);

/** A shell script in place of an agent: prints its version, and runs `rest` for every other command. */
export function standIn(version: string, rest: string): Buffer {
  return Buffer.from(
    `#!/bin/sh\n[ "$1" = version ] && { echo '{"version":"${version}"}'; exit 0; }\n${rest}\n`,
  );
}

/** Runs `bun build.ts --release` with a key of the real minisign, created in `keys` if missing. */
export function makeSignedRelease(options: {
  keys: string;
  outdir: string;
  targets: readonly string[];
  fast: boolean;
}): void {
  const { keys, outdir, targets, fast } = options;
  const secret = join(keys, "minisign.key");
  if (!existsSync(secret)) {
    runSync(["minisign", "-G", "-W", "-p", join(keys, "minisign.pub"), "-s", secret]);
  }
  const what = targets.flatMap((target) => ["--target", target]);
  const how = ["--secret-key", secret, "--release-url", outdir, "--outdir", outdir];
  if (fast) how.push("--fast");
  const when = ["--issued-at", "2026-01-01T00:00:00Z", "--expires-in", "36500d"];
  runSync([process.execPath, "build.ts", "--release", "--no-packages", ...what, ...how, ...when], {
    cwd: root,
  });
}
