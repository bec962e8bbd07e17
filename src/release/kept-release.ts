// The release that an installation keeps beside its executable, so that a control plane can hand it out (handed-out.ts).

import { existsSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { releaseAddressPath } from "../brand.ts";
import { makeDirectory, writeFileAtomic } from "../base/files.ts";
import { readBytes } from "../base/open-file.ts";
import type { System } from "../base/system.ts";
import { manifestName, signatureName } from "./manifest.ts";

/** Where the installation keeps the release that it came from. */
export function keptRelease({ executable, platform }: Pick<System, "executable" | "platform">): string {
  return join(dirname(releaseAddressPath(executable, platform)), "release");
}

export type ReleaseFiles = {
  manifest: Uint8Array;
  signature: Uint8Array;
  archive: { file: string; content: Uint8Array };
};

/**
 * Whether the directory has this manifest and signature, and the archive `file`. All three are looked at, because a kill while
 * they are written leaves a release that no machine accepts.
 */
export function isKept(
  directory: string,
  { manifest, signature }: Pick<ReleaseFiles, "manifest" | "signature">,
  file: string,
): boolean {
  const has = (name: string, content: Uint8Array) =>
    existsSync(join(directory, name)) && readBytes(join(directory, name)).equals(content);
  return has(manifestName, manifest) && has(signatureName, signature) && existsSync(join(directory, file));
}

/** Keeps these verified files beside the executable, and deletes those of the release before. */
export function keepRelease(directory: string, { manifest, signature, archive }: ReleaseFiles): void {
  makeDirectory(directory, 0o755);
  writeFileAtomic(join(directory, archive.file), archive.content, 0o644);
  writeFileAtomic(join(directory, signatureName), signature, 0o644);
  writeFileAtomic(join(directory, manifestName), manifest, 0o644);
  const kept = [archive.file, signatureName, manifestName];
  for (const name of readdirSync(directory))
    if (!kept.includes(name)) rmSync(join(directory, name), { force: true });
}
