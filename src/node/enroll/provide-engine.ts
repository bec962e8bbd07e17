// Which engine a machine gets, for every command that joins, starts or shows an overlay: the newest one of the signed lists
// that it can read, else that of the system's package. `candidatesFor` decides that, in the order of preference: provideEngine
// installs the first candidate that can be installed, and planProvision lists what the first candidate would do.

import { join } from "node:path";
import { brand } from "../../brand.ts";
import { can, firstVersions } from "../../engine/features.ts";
import { AppError } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { Step } from "../../base/plan/plan.ts";
import { recordRequests } from "../../base/plan/plan-requests.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import type { System } from "../../base/system.ts";
import { engineVersion } from "../engine/engine.ts";
import { findEngine, type EngineSettings } from "../engine/find-engine.ts";
import { installEngine, planEngine, type EngineRequest } from "../engine/overlay-install.ts";
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
  /** PEM. Empty: not known yet; it is then read by its fingerprint when it is needed. */
  apiCa?: string | undefined;
  caFingerprint?: string | undefined;
};

type Deps = { system: System; log: Log };

/** The usual installation. */
const usualRequest = {
  source: "auto",
  version: undefined,
  file: undefined,
  sha256: undefined,
  releaseUrl: undefined,
} as const satisfies EngineRequest;

/** What a machine lacks. `old`: the version of the installed engine, of the system's package, which a newer one may replace. */
type Need = { kind: "none" } | { kind: "engine" } | { kind: "newer"; old: string };

/** An engine that would meet the need. `listed`: the version and hash in a signed list; undefined: the usual installation. */
type Candidate = { request: EngineRequest; listed?: { version: string; sha256: string } };

/** Logs that were warned of an old engine: `agent up` calls provideEngine before and after the registration. */
const warned = new WeakSet<Log>();

/**
 * Installs an engine if there is none. Before the first organization of this machine, an old engine of the system's package
 * is replaced if a signed list has a newer one. Otherwise its disadvantages are logged once. Without `newcomer` any
 * organization counts. Throws if there is no engine afterwards.
 */
export async function provideEngine(
  settings: ProvidingSettings,
  deps: Deps,
  newcomer?: Newcomer,
): Promise<void> {
  const { log } = deps;
  const system = trustingNewcomer(deps.system, newcomer);
  const needBefore = await needOf(settings, system, newcomer);
  if (needBefore.kind === "engine") {
    log.info("No overlay engine is installed yet; installing one");
    await installFirst(needBefore, settings, { system, log }, newcomer);
  }
  // Asked again: the engine that was just installed may be an old one of the system's package.
  const need = await needOf(settings, system, newcomer);
  if (need.kind !== "newer") return;
  if (await installFirst(need, settings, { system, log }, newcomer)) return;
  if (!warned.has(log)) log.warn(costOf(need.old));
  warned.add(log);
}

/** The plan of provideEngine. It reads the lists, because they decide whether an engine is installed, and which one. */
export async function planProvision(
  settings: ProvidingSettings,
  system: System,
  newcomer?: Newcomer,
): Promise<Step[]> {
  const recorded = recordRequests(trustingNewcomer(system, newcomer));
  const need = await needOf(settings, system, newcomer);
  const { value: first } = await candidatesFor(need, settings, recorded, newcomer).next();
  const asked = recorded.requests();
  const steps = first === undefined ? [] : planEngine(first.request, settings, system);
  // The installation reads its list again: name it once.
  return [...asked, ...steps.filter((step) => !asked.some((each) => Bun.deepEquals(each, step)))];
}

/** The disadvantages of the installed engine, as a sentence with the line to type, if it is an old one that could be replaced. */
export async function costOfEngine(settings: ProvidingSettings, system: System): Promise<string | undefined> {
  const need = await needOf(settings, system, undefined);
  return need.kind === "newer" ? costOf(need.old) : undefined;
}

/** An old engine is no need once an organization runs with it, or if the user chose the file. */
async function needOf(
  settings: ProvidingSettings,
  system: System,
  newcomer: Newcomer | undefined,
): Promise<Need> {
  const found = findEngine(settings, system);
  if (found === undefined) return { kind: "engine" };
  const isFirst = readModes(settings.configRoot).every(({ slug }) => slug === newcomer?.slug);
  if (!isFirst || settings.overlayBinaryGiven || found.source !== "package") return { kind: "none" };
  const version = await engineVersion(found.path, system).catch(() => undefined);
  return version === undefined || can(version, "offloads")
    ? { kind: "none" }
    : { kind: "newer", old: version };
}

/**
 * The best candidate first. The lists are that of this program's own releases, and the one that the control plane serves at
 * /releases/. Without an engine the usual installation is the last candidate; it asks the program's own list by itself. A list is
 * read when its candidate is asked for.
 */
async function* candidatesFor(
  need: Need,
  { configRoot, stateDb }: ProvidingSettings,
  { system, log }: { system: System; log?: Log },
  newcomer: Newcomer | undefined,
): AsyncGenerator<Candidate, undefined> {
  if (need.kind === "none") return;
  const served = releasesOf(configRoot, newcomer);
  // Undefined stands for the list of this program's own releases.
  const lists = [...(need.kind === "newer" ? [undefined] : []), ...(served === undefined ? [] : [served])];
  for (const releaseUrl of lists) {
    // Beside the newcomer's authority, those of the control planes that are registered here.
    const trusting = trustingControlPlanes(configRoot, system);
    const listed = await newestListed({ releaseUrl }, stateDb, trusting).catch((error: unknown) =>
      logUnusable(releaseUrl, error, log),
    );
    if (listed === undefined) continue;
    const { version, sha256 } = listed;
    if (need.kind === "newer" && compareVersions(version, need.old) <= 0) continue;
    yield {
      request: { ...usualRequest, source: "release", version, releaseUrl },
      listed: { version, sha256 },
    };
  }
  if (need.kind === "engine") yield { request: usualRequest };
}

/** Installs the first candidate that can be installed. False if none can; throws if the usual installation fails. */
async function installFirst(
  need: Need,
  settings: ProvidingSettings,
  deps: Deps,
  newcomer: Newcomer | undefined,
): Promise<boolean> {
  for await (const { request: wanted, listed } of candidatesFor(need, settings, deps, newcomer)) {
    if (listed === undefined) {
      await installEngine(wanted, settings, deps);
      return true;
    }
    const why = need.kind === "newer" ? `The system's package has the old engine ${need.old}; ` : "";
    deps.log.info(`${why}installing ${listed.version}`);
    try {
      await installListed(wanted, listed.sha256, settings, deps);
      return true;
    } catch (error) {
      logUnusable(wanted.releaseUrl, error, deps.log);
    }
  }
  return false;
}

/**
 * Installs an engine of a list. A control plane may serve the list without the archives: then the archive comes from the engine's
 * publisher, verified by the hash of the list.
 */
async function installListed(
  wanted: EngineRequest,
  sha256: string,
  settings: ProvidingSettings,
  deps: Deps,
): Promise<void> {
  try {
    await installEngine(wanted, settings, deps);
  } catch (error) {
    if (wanted.releaseUrl === undefined || !(error instanceof AppError)) throw error;
    await installEngine({ ...wanted, releaseUrl: undefined, sha256 }, settings, deps);
  }
}

/** Logs why a list or its engine cannot be used: another candidate may do. Throws an error that is a defect of this program. */
function logUnusable(from: string | undefined, error: unknown, log: Log | undefined): undefined {
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
  let ca = apiCa || undefined;
  if ((ca === undefined && caFingerprint === undefined) || origin === undefined) return system;
  return {
    ...system,
    async fetch(url, init = {}) {
      if (URL.parse(url)?.origin !== origin) return system.fetch(url, init);
      ca ??= await readApiCaByFingerprint(apiBase, caFingerprint ?? "");
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
