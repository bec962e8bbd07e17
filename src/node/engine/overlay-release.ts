// The engine's published archives: which one is for this machine, which version is the newest, what hash it must
// have. What is fetched here has the right hash; whether it works is for others to try.

import { isAbsolute } from "node:path";
import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import type { Log } from "../../log.ts";
import type { Step } from "../../plan.ts";
import { archiveName } from "../../platform/engine-archive.ts";
import { fetchFile, makeProgress, sha256, smallFileMs } from "../../release/download.ts";
import { maxArtifactBytes, type Manifest } from "../../release/manifest.ts";
import { compareVersions } from "../../release/version.ts";
import type { System } from "../../system.ts";
import { checkRelease, fetchRelease, releaseKeys } from "../files/published-release.ts";

export type EngineSource = {
  version?: string | undefined;
  releaseUrl?: string | undefined;
  sha256?: string | undefined;
};

export type EngineRelease = {
  base: string;
  file: string;
  /** undefined where the channel does not tell: the archive does. */
  version: string | undefined;
  /** undefined: only the engine's own sum file can tell. */
  sha256: string | undefined;
};

type Needs = Pick<System, "fetch" | "sleep" | "now" | "platform" | "arch" | "stderr" | "env">;

const sumFile = "SHASUM256.txt";
const maxSumBytes = 256 * 1024;
/** A channel that is silent for this long counts as away, so that the package manager's turn comes soon. */
const findStallMs = 5_000;

/** Where the wanted or the newest release is. Throws where no channel answers. */
export async function findEngineRelease(
  source: EngineSource,
  stateDb: string,
  system: Needs,
): Promise<EngineRelease> {
  const file = archiveName(system);
  const listed = await listedEngines(source, stateDb, system);
  const pinned = listed
    .filter((engine) => engine.file === file && (source.version ?? engine.version) === engine.version)
    .sort((a, b) => compareVersions(b.version, a.version))[0];
  const version = source.version ?? pinned?.version ?? (await newestVersion(source, system));
  const base = (source.releaseUrl ?? brand.engineReleaseUrl).replace("{version}", version ?? "");
  return { base, file, version, sha256: source.sha256 ?? pinned?.sha256 };
}

/** The requests of findEngineRelease and fetchEngine, as far as they are known before any answer. */
export function planEngineRelease(
  { releaseUrl, version }: EngineSource,
  machine: Pick<System, "platform" | "arch">,
): Step[] {
  const base = (releaseUrl ?? brand.engineReleaseUrl).replace("{version}", version ?? "{version}");
  const archive: Step = {
    step: "request",
    method: "GET",
    url: base.replace(/\/?$/, "/") + archiveName(machine),
  };
  if (version !== undefined || releaseUrl !== undefined) return [archive];
  return [{ step: "request", method: "GET", url: brand.engineLatestUrl }, archive];
}

/** The archive, with the hash that it must have: ours, the caller's, or (with a warning) the engine's own sum file's. */
export async function fetchEngine(
  release: EngineRelease,
  { system, log }: { system: Needs; log: Log },
): Promise<Uint8Array> {
  const { base, file } = release;
  const wanted = release.sha256 ?? (await ownSum(release, system));
  const progress = makeProgress(file, system);
  const options = { maxBytes: maxArtifactBytes, onProgress: progress.update };
  const content = await fetchFile(base, file, options, system).finally(progress.end);
  const sum = sha256(content);
  if (sum !== wanted.toLowerCase()) {
    throw new AppError("engine_failed", `${file} has the SHA-256 ${sum}, not ${wanted}`, {
      hint: "Nothing was replaced.",
    });
  }
  if (release.sha256 === undefined)
    log.warn(`the hash of ${file} comes from ${sumFile}, which is not signed`);
  return content;
}

/** What our own signed manifest says of engines. A channel without one says nothing; a bad one is refused. */
async function listedEngines(
  source: EngineSource,
  stateDb: string,
  system: Needs,
): Promise<Manifest["engines"]> {
  if (releaseKeys().length === 0) return [];
  const request = { releaseUrl: source.releaseUrl?.replace("{version}", ""), allowDowngrade: false };
  const published = await fetchRelease(request, system, { stallMs: findStallMs }).catch((error: unknown) => {
    // A channel of the engine alone has no list of ours.
    if (error instanceof AppError) return undefined;
    throw error;
  });
  return published === undefined ? [] : checkRelease(published, request, { stateDb }, system).engines;
}

/** The engine's newest release is where its "latest" address leads. A mirror holds one version, whichever it is. */
async function newestVersion({ releaseUrl }: EngineSource, system: Needs): Promise<string | undefined> {
  if (releaseUrl !== undefined) return undefined;
  const abort = new AbortController();
  const timer = system.sleep(findStallMs, abort.signal).then(
    () => abort.abort(),
    () => undefined,
  );
  try {
    const response = await system.fetch(brand.engineLatestUrl, { redirect: "manual", signal: abort.signal });
    const version = /\/v(\d+\.\d+\.\d+)$/.exec(response.headers.get("location") ?? "")?.[1];
    if (version !== undefined) return version;
  } catch (error) {
    throw new AppError("control_plane_unreachable", `Cannot reach ${brand.engineLatestUrl}`, {
      cause: error,
      hint: "Check the network, or name a mirror with --release-url.",
    });
  } finally {
    abort.abort();
    await timer;
  }
  throw new AppError("control_plane_unreachable", `${brand.engineLatestUrl} does not name a release`);
}

/** Lines are `<64 hex><two spaces><name>`; members of archives have lines of their own (`archive/member`). */
async function ownSum({ base, file }: EngineRelease, system: Needs): Promise<string> {
  const within = { stallMs: findStallMs, totalMs: smallFileMs };
  const bytes = await fetchFile(base, sumFile, { maxBytes: maxSumBytes, ...within }, system);
  const line = Buffer.from(bytes)
    .toString("utf8")
    .split(/\r?\n/)
    .find((each) => each.slice(66) === file && /^[0-9a-f]{64} [ *]/.test(each));
  if (line !== undefined) return line.slice(0, 64);
  throw new AppError("engine_failed", `${sumFile} at ${base} has no line for ${file}`, {
    hint: isAbsolute(base)
      ? "Give its hash with --sha256."
      : "Give its hash with --sha256, or another --release-url.",
  });
}
