// Downloads and checks archives of signed releases, and keeps one beside an installation that hands it to other machines.

import { join } from "node:path";
import { buildInfo } from "../../build-info.ts";
import { AppError } from "../../base/errors.ts";
import type { Step } from "../../base/plan/plan.ts";
import { planReplaced } from "../../base/plan/plan-file.ts";
import { fetchFile, FileMissing, makeProgress, planGet } from "../../release/download.ts";
import { keepRelease, keptRelease } from "../../release/kept-release.ts";
import {
  artifactsFor,
  manifestName,
  signatureName,
  type Download,
  type Manifest,
} from "../../release/manifest.ts";
import type { System } from "../../base/system.ts";
import { trustingControlPlanes } from "../files/pinned-authorities.ts";
import { checkRelease, fetchRelease } from "../../release/published-release.ts";
import { sha256Hex } from "../../base/sha256.ts";
import type { Places } from "./update-trial.ts";

/**
 * Keeps the release of this very program, which a control plane hands out. Throws if its publisher does not have it any
 * more, or cannot be reached.
 */
export async function keepOwnRelease(places: Places, system: System): Promise<void> {
  const { published, manifest } = await findOwnRelease(places, system);
  await keepArchive(published, manifest, places, system);
}

type Published = Awaited<ReturnType<typeof fetchRelease>>;

/** Downloads the archive of a release that was checked, and keeps it with its manifest. */
export async function keepArchive(published: Published, manifest: Manifest, places: Places, system: System) {
  const archive = await fetchArchive(artifactsToKeep(manifest), published.base, places, system);
  keepRelease(keptRelease(system), { ...published, archive });
}

/** The plan of keepOwnRelease. */
export async function planKeepOwnRelease(places: Places, system: System): Promise<Step[]> {
  const { published, manifest } = await findOwnRelease(places, system);
  return [
    ...[manifestName, signatureName, archiveToKeep(manifest)].flatMap((name) =>
      planGet(published.base, name),
    ),
    ...planKept(manifest, system),
  ];
}

/** A release has an archive in several formats. Only the last one is kept: every machine can unpack it. */
export const artifactsToKeep = (manifest: Manifest): Download[] =>
  artifactsFor(manifest, buildInfo.target).slice(-1);

/** The name of that archive. */
export const archiveToKeep = (manifest: Manifest): string => artifactsToKeep(manifest)[0]?.file ?? "";

/** The files that keepRelease writes. */
export const planKept = (manifest: Manifest, system: System): Step[] =>
  [archiveToKeep(manifest), signatureName, manifestName].map((name) =>
    planReplaced(join(keptRelease(system), name), 0o644),
  );

/** The published release of this version, of any age: nothing is installed from it here. */
async function findOwnRelease(places: Places, system: System) {
  const request = { version: buildInfo.version, allowDowngrade: true };
  const published = await fetchRelease(request, trustingControlPlanes(places.configRoot, system));
  // 0: no release counts as older than one that was seen.
  return { published, manifest: checkRelease(published, request, 0, system) };
}

/** The first of these that is there, as it was signed: a control plane may have the .tar.gz alone. */
export async function fetchArchive(
  wanted: readonly Download[],
  base: string,
  places: Pick<Places, "configRoot">,
  system: System,
): Promise<{ file: string; content: Uint8Array }> {
  const [artifact, ...alternatives] = wanted;
  if (artifact === undefined) throw new AppError("internal", "No download is wanted");
  const progress = makeProgress(artifact.file, system);
  const options = {
    maxBytes: artifact.size,
    onProgress: (done: number) => progress.update(done, artifact.size),
  };
  const trusting = trustingControlPlanes(places.configRoot, system);
  let content: Uint8Array;
  try {
    content = await fetchFile(base, artifact.file, options, trusting).finally(progress.end);
  } catch (error) {
    if (!(error instanceof FileMissing) || alternatives.length === 0) throw error;
    return fetchArchive(alternatives, base, places, system);
  }
  if (content.length !== artifact.size) {
    throw new AppError(
      "failed",
      `${artifact.file} is incomplete: ${content.length} of ${artifact.size} bytes`,
    );
  }
  const sum = sha256Hex(content);
  if (sum !== artifact.sha256) {
    throw new AppError(
      "failed",
      `${artifact.file} has the SHA-256 ${sum}, not the signed ${artifact.sha256}`,
    );
  }
  return { file: artifact.file, content };
}
