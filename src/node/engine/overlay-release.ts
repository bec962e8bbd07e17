// Finds and downloads the engine's published archives: the one for this machine, the newest version, the expected hash.
// Verifies the hash only; engine-trial.ts tests the engine.

import { isAbsolute } from "node:path";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { Step } from "../../base/plan/plan.ts";
import { quoteWord } from "../../base/quote.ts";
import { archiveName } from "../../platform/engine-archive.ts";
import {
  fetchFile,
  makeProgress,
  planGet,
  smallFileMs,
  type DownloadSystem,
} from "../../release/download.ts";
import { manifestName, maxArtifactBytes, signatureName, type Manifest } from "../../release/manifest.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import type { System } from "../../base/system.ts";
import { readSeenSequence } from "../files/update-marker.ts";
import { shownAddress } from "../../release/release-address.ts";
import { checkRelease, fetchRelease, releaseBase, releaseKeys } from "../../release/published-release.ts";
import { sha256Hex } from "../../base/sha256.ts";

/** Which engine is asked for, and where from. */
export type EngineSource = {
  version?: string | undefined;
  releaseUrl?: string | undefined;
  sha256?: string | undefined;
  /** The caller verifies the file that it takes from the archive, so no signed list is needed. Not for `fetchEngine`. */
  isPinned?: boolean;
};

type EngineRelease = {
  /** The address of the release's files. */
  base: string;
  /** The name of the archive. */
  file: string;
  /** Undefined if the channel does not name it: then the engine in the archive tells it. */
  version: string | undefined;
  /** Of the archive. Undefined if only the engine's own sum file has it. */
  sha256: string | undefined;
};

type UsedSystem = DownloadSystem &
  Pick<System, "now" | "platform" | "arch" | "stderr" | "env" | "executable">;

const sumFile = "SHASUM256.txt";
const maxSumBytes = 256 * 1024;
/** Of a SHA-256 in hexadecimal. */
const sumLength = 64;
/** A channel that sends nothing for this time counts as unreachable, so that the package manager is tried soon. */
const findStallMs = 5_000;

/** Finds the requested or the newest release. Throws if no channel answers. */
export async function findEngineRelease(
  source: EngineSource,
  stateDb: string,
  system: UsedSystem,
): Promise<EngineRelease> {
  const file = archiveName(system);
  const listed = await listedEngines(source, stateDb, system);
  const entry = listed
    .filter((engine) => engine.file === file && (source.version ?? engine.version) === engine.version)
    .sort((a, b) => compareVersions(b.version, a.version))[0];
  const version = source.version ?? entry?.version ?? (await latestByRedirect(source, system));
  const base = (source.releaseUrl ?? brand.engineReleaseUrl).replace("{version}", version ?? "");
  return { base, file, version, sha256: source.sha256 ?? entry?.sha256 };
}

/** The newest engine for this machine in a signed list of releases; undefined without a list. Throws if it cannot be read. */
export async function newestListed(
  source: Pick<EngineSource, "releaseUrl">,
  stateDb: string,
  system: UsedSystem,
): Promise<Manifest["engines"][number] | undefined> {
  const file = archiveName(system);
  const listed = (await listedEngines(source, stateDb, system)).filter((engine) => engine.file === file);
  return listed.sort((a, b) => compareVersions(a.version, b.version)).at(-1);
}

/**
 * The version to which an update leads: the requested one, else the newest that the channel names. Throws if it names none: a
 * mirror that withholds its list must not hide an update. A known hash does not replace the list here, since it says nothing
 * about newer versions.
 */
export async function updateVersion(
  { version: requested, releaseUrl }: EngineSource,
  stateDb: string,
  system: UsedSystem,
): Promise<string> {
  const source = { version: requested, releaseUrl };
  const { version } = await findEngineRelease(source, stateDb, system);
  if (version !== undefined) return version;
  const base = releaseUrl ?? brand.engineReleaseUrl;
  // Without release keys the list was not read yet. Read it now: for an unreachable mirror this throws an error of its own.
  if (releaseKeys().length === 0) await fetchList(source, system);
  throw new AppError(
    "release_unsigned",
    `Cannot tell whether there is a newer engine: no signed list at ${shownAddress(base)} names one for this machine`,
    { hint: "Ask the operator of this address for a signed list, or check another --release-url." },
  );
}

/**
 * The requests of findEngineRelease and fetchEngine, as far as they are known before any answer: if the signed list can be read, it
 * names the engine. Throws like them if there is no address to ask.
 */
export function planEngineRelease(
  source: EngineSource,
  system: Pick<System, "platform" | "arch" | "executable">,
): Step[] {
  const { releaseUrl, version, sha256, isPinned = false } = source;
  const base = (releaseUrl ?? brand.engineReleaseUrl).replace("{version}", version ?? "{version}");
  const list = releaseKeys().length === 0 ? undefined : listBase(source, system);
  const archive = planGet(base, archiveName(system));
  if (list !== undefined)
    return [...planGet(list, manifestName), ...planGet(list, signatureName), ...archive];
  const isNewest = version === undefined && releaseUrl === undefined;
  return [
    ...(isNewest ? [{ step: "request", method: "GET", url: brand.engineLatestUrl } as const] : []),
    ...(sha256 === undefined && !isPinned ? planGet(base, sumFile) : []),
    ...archive,
  ];
}

/** Where the signed list is. Undefined if there is no address, and the caller knows a hash. */
function listBase(source: EngineSource, system: Pick<System, "platform" | "executable">): string | undefined {
  try {
    return releaseBase(listRequest(source), system);
  } catch (error) {
    return permitNoList(source, error);
  }
}

/** Downloads the archive and verifies its hash: the caller's, our manifest's, or (with a warning) the engine's sum file's. */
export async function fetchEngine(
  release: EngineRelease,
  { system, log }: { system: UsedSystem; log: Log },
): Promise<Uint8Array> {
  const { base, file } = release;
  const wanted = release.sha256 ?? (await publishedSum(release, system));
  const progress = makeProgress(file, system);
  const options = { maxBytes: maxArtifactBytes, onProgress: progress.update };
  const content = await fetchFile(base, file, options, system).finally(progress.end);
  const sum = sha256Hex(content);
  if (sum !== wanted.toLowerCase()) {
    throw new AppError("engine_failed", `${file} has the SHA-256 ${sum}, not ${wanted}`, {
      hint: "Nothing was replaced.",
    });
  }
  if (release.sha256 === undefined)
    log.warn(`The hash of ${file} comes from ${sumFile}, which is not signed`);
  return content;
}

/**
 * The engines of the signed release list. Without the list, a release is taken only by a hash that the caller knows, or by
 * a build without release keys: an address that withholds the list must not get an unsigned engine installed.
 */
async function listedEngines(
  source: EngineSource,
  stateDb: string,
  system: UsedSystem,
): Promise<Manifest["engines"]> {
  if (releaseKeys().length === 0) return [];
  const published = await fetchList(source, system);
  return published === undefined
    ? []
    : checkRelease(published, listRequest(source), readSeenSequence(stateDb), system).engines;
}

/** The list, not verified yet. Undefined if it cannot be read and the caller knows a hash. */
async function fetchList(source: EngineSource, system: UsedSystem) {
  try {
    return await fetchRelease(listRequest(source), system, { stallMs: findStallMs });
  } catch (error) {
    return permitNoList(source, error);
  }
}

/** Without the list, an engine is taken only if the caller knows a hash. */
function permitNoList(source: EngineSource, error: unknown): undefined {
  if (!(error instanceof AppError)) throw error;
  if (source.sha256 === undefined && source.isPinned !== true) throw noListError(source, error);
}

const listRequest = ({ releaseUrl }: EngineSource) => ({
  releaseUrl: releaseUrl?.replace("{version}", ""),
  allowDowngrade: false,
  isForEngine: true,
});

function noListError({ releaseUrl, version }: EngineSource, cause: AppError): AppError {
  const install = `${brand.executable} overlay install --source`;
  const from = releaseUrl === undefined ? "" : ` --release-url ${quoteWord(shownAddress(releaseUrl))}`;
  return new AppError(
    cause.code === "control_plane_unreachable" ? cause.code : "release_unsigned",
    `The signed list of releases cannot be read, so no engine is downloaded: ${cause.message}`,
    {
      cause,
      hint:
        `Give the hash of the engine's archive: \`${install} release --version ${version ?? "V"} --sha256 HEX${from}\`. ` +
        `Or take the system's package: \`${install} package\`.`,
    },
  );
}

/**
 * The version to which the engine's "latest" URL redirects. Undefined for a mirror: it has one version, which its archive names.
 * Throws control_plane_unreachable, the code for every download that fails: `installEngine` then tries the package manager.
 */
async function latestByRedirect(
  { releaseUrl }: EngineSource,
  system: UsedSystem,
): Promise<string | undefined> {
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

/** The archive's hash in the sum file. Lines are `<64 hex><two spaces><name>`. Members of archives have lines `archive/member`. */
async function publishedSum({ base, file }: EngineRelease, system: UsedSystem): Promise<string> {
  const limits = { maxBytes: maxSumBytes, stallMs: findStallMs, totalMs: smallFileMs };
  const bytes = await fetchFile(base, sumFile, limits, system);
  const line = Buffer.from(bytes)
    .toString("utf8")
    .split(/\r?\n/)
    .find((text) => text.slice(sumLength + 2) === file && /^[0-9a-f]{64} [ *]/.test(text));
  if (line !== undefined) return line.slice(0, sumLength);
  throw new AppError("engine_failed", `${sumFile} at ${shownAddress(base)} has no line for ${file}`, {
    hint: isAbsolute(base)
      ? "Give its hash with --sha256."
      : "Give its hash with --sha256, or another --release-url.",
  });
}
