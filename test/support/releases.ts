// Signed releases for tests: any executable is packed, listed and signed as the build does.

import { generateKeyPairSync, randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build, hostTarget } from "../../build.ts";
import { runSync } from "./debian.ts";
import { writePublicKey, type SecretKey } from "../../src/release/minisign.ts";
import { packExecutable, writeRelease } from "../../src/release/publish.ts";

const template = readFileSync(join(import.meta.dir, "../../install"), "utf8");

export function makeReleaseKey(): SecretKey & { text: string } {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const key = {
    id: randomBytes(8),
    seed: privateKey.export({ format: "der", type: "pkcs8" }).subarray(-32),
    key: publicKey.export({ format: "der", type: "spki" }).subarray(-32),
  };
  return { ...key, text: writePublicKey(key) };
}

export type TestRelease = {
  version: string;
  sequence?: number;
  /** Target → executable. */
  executables: Record<string, Uint8Array>;
  expiresAt?: string;
};

/** Creates the release directory, with the fastest compression. */
export async function makeRelease(directory: string, release: TestRelease, key: SecretKey): Promise<void> {
  mkdirSync(directory, { recursive: true });
  const { version } = release;
  const artifacts = [];
  for (const [target, executable] of Object.entries(release.executables)) {
    const { artifact, content } = await packExecutable(executable, target, { version, level: "0" });
    writeFileSync(join(directory, artifact.file), content);
    artifacts.push(artifact);
  }
  const head = {
    sequence: release.sequence ?? 1,
    issued_at: "2026-01-01T00:00:00Z",
    expires_at: release.expiresAt ?? "2100-01-01T00:00:00Z",
    version,
    artifacts,
    engines: [],
  };
  writeRelease(directory, head, key, { template, releaseUrl: directory });
}

/** An executable of that version which trusts the releases that `key` signs. */
export function buildVersion(directory: string, version: string, key: { text: string }): Promise<string> {
  return build(hostTarget(), join(directory, `agent-${version}`), { version, releaseKeys: [key.text] });
}

/** An executable that prints its version, and for other commands runs the shell script `rest`. */
export function standIn(version: string, rest: string): Buffer {
  return Buffer.from(
    `#!/bin/sh\n[ "$1" = version ] && { echo '{"version":"${version}"}'; exit 0; }\n${rest}\n`,
  );
}

/** Runs `bun build.ts --release` with a minisign key, which is created in `keys` if it is missing. */
export function makeSignedRelease(options: {
  keys: string;
  outdir: string;
  targets: readonly string[];
  level: string;
}): void {
  const { keys, outdir, targets, level } = options;
  const secret = join(keys, "minisign.key");
  if (!existsSync(secret)) {
    runSync(["minisign", "-G", "-W", "-p", join(keys, "minisign.pub"), "-s", secret]);
  }
  const what = targets.flatMap((target) => ["--target", target]);
  const how = ["--secret-key", secret, "--level", level, "--release-url", outdir, "--outdir", outdir];
  const when = ["--issued-at", "2026-01-01T00:00:00Z", "--expires-in", "36500d"];
  const root = join(import.meta.dir, "../..");
  runSync([process.execPath, "build.ts", "--release", ...what, ...how, ...when], { cwd: root });
}
