// The one place that decides which engine a machine gets, for every command that joins, starts or shows an overlay: the newest
// one of the signed lists that it can read, else that of the system's package.

import { join } from "node:path";
import { brand } from "../../brand.ts";
import { can, firstVersions } from "../../engine/features.ts";
import { AppError } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { Step } from "../../base/plan.ts";
import { recordRequests } from "../../base/plan-requests.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import type { System } from "../../base/system.ts";
import { engineVersion } from "../engine/engine.ts";
import { findEngine, type EngineFile, type EngineSettings } from "../engine/overlay.ts";
import { installEngine, planEngine } from "../engine/overlay-install.ts";
import { newestListed } from "../engine/overlay-release.ts";
import { credentialsIfOwn } from "../files/organizations.ts";
import { trustingControlPlanes } from "../files/pinned-authorities.ts";
import { readApiCaByFingerprint } from "./register-input.ts";
import { readModes } from "./services.ts";

export type ProvidingSettings = EngineSettings & { configRoot: string; stateDb: string };

/** The organization that needs an engine. Its control plane may offer releases. */
export type Newcomer = {
  slug: string;
  apiBase?: string | undefined;
  /** Empty: it is not known yet, and read by its fingerprint where it is needed. */
  apiCa?: string | undefined;
  caFingerprint?: string | undefined;
};

type Deps = { system: System; log: Log };

const request = {
  source: "auto",
  version: undefined,
  file: undefined,
  sha256: undefined,
  releaseUrl: undefined,
} as const;

/**
 * Installs an engine if there is none. Before the first organization of this machine, an old engine of the system's package
 * is replaced, if a signed list has a newer one; else what it costs is said, once. Without `newcomer` any organization counts.
 */
export async function provideEngine(
  settings: ProvidingSettings,
  deps: Deps,
  newcomer?: Newcomer,
): Promise<void> {
  const { log } = deps;
  const system = trustingNewcomer(deps.system, newcomer);
  const found = findEngine(settings, system);
  if (found === undefined) {
    log.info("No overlay engine is installed yet; installing one");
    if (await installOffered(settings, { system, log }, newcomer, undefined)) return;
    await installEngine(request, settings, { system, log });
  }
  const old = await replaceable(settings, system, newcomer);
  if (old === undefined || (await installOffered(settings, { system, log }, newcomer, old))) return;
  log.warn(costOf(old));
}

/** The plan of provideEngine. It reads the lists, because they decide whether an engine is installed, and which one. */
export async function planProvision(
  settings: ProvidingSettings,
  system: System,
  newcomer?: Newcomer,
): Promise<Step[]> {
  const recorded = recordRequests(trustingNewcomer(system, newcomer));
  const isMissing = findEngine(settings, system) === undefined;
  const old = isMissing ? undefined : await replaceable(settings, system, newcomer);
  if (!isMissing && old === undefined) return [];
  const { value: offer } = await offersOf(settings, recorded, newcomer, old).next();
  const requests = recorded.requests();
  if (offer === undefined)
    return isMissing ? [...requests, ...planEngine(request, settings, system)] : requests;
  const { version, releaseUrl } = offer;
  const wanted = { ...request, source: "release", version, releaseUrl } as const;
  return [...requests, ...planEngine(wanted, settings, system)];
}

/**
 * The disadvantages of the present engine, as a sentence with the line to type, if it is an old one that could be
 * replaced.
 */
export async function costOfEngine(settings: ProvidingSettings, system: System): Promise<string | undefined> {
  const old = await replaceable(settings, system, undefined);
  return old === undefined ? undefined : costOf(old);
}

/** The version of an old engine of the system's package, which may be replaced: no organization runs with it yet. */
async function replaceable(
  settings: ProvidingSettings,
  system: System,
  newcomer: Newcomer | undefined,
): Promise<string | undefined> {
  const isFirst = readModes(settings.configRoot).every(({ slug }) => slug === newcomer?.slug);
  const found: EngineFile | undefined = findEngine(settings, system);
  if (!isFirst || settings.overlayBinaryGiven || found?.source !== "package") return undefined;
  const version = await engineVersion(found.path, system).catch(() => undefined);
  return version === undefined || can(version, "offloads") ? undefined : version;
}

type Offer = { version: string; sha256: string; releaseUrl: string | undefined };

/**
 * The newest engine of one signed list after the other, if it is newer than `than`: of the list that this program asks for
 * its own releases, and of the one that the control plane serves at /releases/. Reads a list when its engine is asked for.
 */
async function* offersOf(
  { configRoot, stateDb }: ProvidingSettings,
  { system, log }: { system: System; log?: Log },
  newcomer: Newcomer | undefined,
  than: string | undefined,
): AsyncGenerator<Offer, undefined> {
  const offered = releasesOf(configRoot, newcomer);
  // Without an engine the usual installation asks the first list by itself.
  const lists = [...(than === undefined ? [] : [undefined]), ...(offered === undefined ? [] : [offered])];
  for (const releaseUrl of lists) {
    const trusting = trustingControlPlanes(configRoot, system);
    const newest = await newestListed({ releaseUrl }, stateDb, trusting).catch((error: unknown) =>
      passOver(releaseUrl, error, log),
    );
    if (newest === undefined || (than !== undefined && compareVersions(newest.version, than) <= 0)) continue;
    yield { version: newest.version, sha256: newest.sha256, releaseUrl };
  }
}

/** Installs the first of these offers that can be had. False if there is none. */
async function installOffered(
  settings: ProvidingSettings,
  deps: Deps,
  newcomer: Newcomer | undefined,
  than: string | undefined,
): Promise<boolean> {
  for await (const { version, sha256, releaseUrl } of offersOf(settings, deps, newcomer, than)) {
    const why = than === undefined ? "" : `The system's package has the old engine ${than}; `;
    deps.log.info(`${why}installing ${version}`);
    const wanted = { ...request, source: "release", version } as const;
    try {
      await installEngine({ ...wanted, releaseUrl }, settings, deps).catch((error: unknown) => {
        // A mirror may have the list alone: then the archive is the engine's own, with the hash of the list.
        if (releaseUrl === undefined || !(error instanceof AppError)) throw error;
        return installEngine({ ...wanted, sha256 }, settings, deps);
      });
      return true;
    } catch (error) {
      passOver(releaseUrl, error, deps.log);
    }
  }
  return false;
}

/** Another list may help. */
function passOver(from: string | undefined, error: unknown, log: Log | undefined): undefined {
  if (!(error instanceof AppError)) throw error;
  log?.debug("No newer engine can be installed", { from, reason: error.message });
}

/** Where the control plane serves releases, if it does. */
function releasesOf(configRoot: string, newcomer: Newcomer | undefined): string | undefined {
  if (newcomer === undefined) return undefined;
  const base = newcomer.apiBase ?? credentialsIfOwn(join(configRoot, newcomer.slug))?.api_base;
  const url = base === undefined ? null : URL.parse("/releases/", base);
  return url === null ? undefined : url.href;
}

/** The same system, whose requests to the newcomer's control plane trust the authority of its join key. */
function trustingNewcomer(system: System, newcomer: Newcomer | undefined): System {
  const { apiBase = "", apiCa, caFingerprint } = newcomer ?? {};
  const origin = URL.parse(apiBase)?.origin;
  let known = apiCa || undefined;
  if ((known ?? caFingerprint) === undefined || origin === undefined) return system;
  return {
    ...system,
    async fetch(url, init = {}) {
      if (URL.parse(url)?.origin !== origin) return system.fetch(url, init);
      const ca = (known ??= await readApiCaByFingerprint(apiBase, caFingerprint ?? ""));
      return system.fetch(url, { ...init, tls: { ...init.tls, ca } });
    },
  };
}

/** The disadvantages of a distribution's engine, as measured beside 1.12. */
function costOf(version: string): string {
  const newer = firstVersions.offloads.join(".");
  return (
    `Engine ${version} of the system's package is old: a tenth of the throughput of ${newer}, peers behind NATs that stay ` +
    `relayed, and up to 18 s without tunnels after a change of network. Install a newer one: ${brand.executable} overlay update`
  );
}
