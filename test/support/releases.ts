// Releases for tests, really signed: whatever is to be the executable is packed, listed and signed as the build does.

import { generateKeyPairSync, randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
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

/** Makes the directory; the fastest packing, as these are read once. */
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
