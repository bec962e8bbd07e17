// Installs the Wintun library on a Windows machine: from the engine's own archive, with a pinned hash, to the place where
// the engine looks for it. Changes no other file.

import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { makeDirectory, removeTree, writeFileAtomic } from "../../base/files.ts";
import type { Step } from "../../base/plan/plan.ts";
import { windows, wintunFor, type Wintun } from "../../platform/windows/wintun.ts";
import { archiveKind, readMember } from "../../release/archive.ts";
import { trustingControlPlanes } from "../files/pinned-authorities.ts";
import { fetchFile, makeProgress } from "../../release/download.ts";
import { maxArtifactBytes } from "../../release/manifest.ts";
import type { System } from "../../base/system.ts";
import { findEngineRelease, planEngineRelease, type EngineSource } from "../engine/overlay-release.ts";
import { readBytes } from "../../base/open-file.ts";
import { sha256Hex } from "../../base/sha256.ts";

type WintunRequest = Pick<EngineSource, "version" | "releaseUrl"> & {
  /** Path of the engine's Windows archive, or of the library itself. */
  file: string | undefined;
};

type Places = { configRoot: string; overlayBinary: string; stateDb: string };

/** `changed` is false if the library with the right hash was already there. Only tests pass `wintun`. */
export async function installWintun(
  request: WintunRequest,
  places: Places,
  system: System,
  wintun: Wintun = wintunFor(system.arch, places.overlayBinary),
): Promise<{ path: string; changed: boolean }> {
  const { path } = wintun;
  if (isInstalled(wintun)) return { path, changed: false };
  const bytes =
    request.file === undefined ? await download(request, places, system) : readLocal(request.file);
  const library = archiveKind(bytes) === undefined ? bytes : readMember(bytes, wintun.member);
  const sum = sha256Hex(library);
  if (sum !== wintun.sha256) {
    throw new AppError("failed", `This wintun.dll has the SHA-256 ${sum}, not ${wintun.sha256}`, {
      hint: "Nothing was installed. Use the engine's own archive for Windows.",
    });
  }
  makeDirectory(dirname(path), 0o755);
  writeFileAtomic(path, library, 0o644);
  return { path, changed: true };
}

export function removeWintun({ overlayBinary }: Places, { arch }: Pick<System, "arch">): void {
  removeTree(wintunFor(arch, overlayBinary).path);
}

/** The plan of installWintun or removeWintun. Contacts no server and works on any system. */
export function planWintun(
  request: WintunRequest | "remove",
  places: Places,
  { arch, executable }: Pick<System, "arch" | "executable">,
): Step[] {
  const wintun = wintunFor(arch, places.overlayBinary);
  const file: Step = { step: "file", path: wintun.path, mode: "0644", change: "created" };
  if (request === "remove") return existsSync(wintun.path) ? [{ ...file, change: "removed" }] : [];
  if (isInstalled(wintun)) return [{ ...file, change: "same" }];
  if (request.file !== undefined) return [file];
  return [
    ...planEngineRelease({ ...request, isPinned: true }, { platform: windows, arch, executable }),
    file,
  ];
}

/** Whether the library is in the place where the engine looks for it, with the pinned hash. */
export function isInstalled({ path, sha256: wanted }: Wintun): boolean {
  try {
    return sha256Hex(readBytes(path, maxArtifactBytes)) === wanted;
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT" || systemErrorCode(error) === "ENOTDIR") return false;
    throw fromSystemError(`read ${path}`, error);
  }
}

/** The library's hash is known here, so the archive needs no signature. */
async function download(
  request: WintunRequest,
  { configRoot, stateDb }: Places,
  machine: System,
): Promise<Uint8Array> {
  const system = trustingControlPlanes(configRoot, machine);
  const { base, file } = await findEngineRelease({ ...request, isPinned: true }, stateDb, system);
  const progress = makeProgress(file, system);
  const options = { maxBytes: maxArtifactBytes, onProgress: progress.update };
  return await fetchFile(base, file, options, system).finally(progress.end);
}

function readLocal(path: string): Uint8Array {
  try {
    return readBytes(path, maxArtifactBytes);
  } catch (error) {
    throw fromSystemError(`read ${path}`, error);
  }
}
