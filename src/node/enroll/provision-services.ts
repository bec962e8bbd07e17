// Completes a registration: installs an engine if there is none, and the services that run it. If this machine cannot run
// services, the result has the command to type instead. That is not a failure.

import { join } from "node:path";
import { brand, defaultPlaces } from "../../brand.ts";
import { can, firstVersions } from "../../engine-features.ts";
import { AppError, messageOf } from "../../errors.ts";
import type { Log } from "../../log.ts";
import { applyChanges, planChanges } from "../../platform/apply.ts";
import { daemonArgs } from "../../platform/daemon-args.ts";
import { daemonByHand, hasSystemd, serviceManager } from "../../platform/service-manager.ts";
import { unmask } from "../../platform/service-state.ts";
import { authTimer, daemonUnit, engineUnit, type Team } from "../../platform/systemd.ts";
import { needsWintun } from "../../platform/wintun.ts";
import { quoteWord, type Step } from "../../plan.ts";
import type { Mode } from "../../protocol/values.ts";
import type { System } from "../../system.ts";
import { installWintun, planWintun } from "./install-tap.ts";
import { compareVersions } from "../../release/version.ts";
import { installEngine, planEngine } from "../engine/overlay-install.ts";
import { newestListed } from "../engine/overlay-release.ts";
import { engineVersion } from "../engine/engine.ts";
import { findEngine } from "../engine/overlay.ts";
import { trustingControlPlanes } from "../files/pinned-authorities.ts";
import { decideForStart } from "../files/rewrite-config.ts";
import { planServices, readModes, requireSafePrograms, type ServiceSettings } from "./services.ts";

export type Started = {
  started: boolean;
  /** Sentences: what was not done, and the command that starts the overlay by hand. */
  left: string[];
};

/** The plan of startOverlay, for --dry-run. `added` is not in the configuration root yet. */
export function planStart(added: Team, settings: ServiceSettings, system: System): Step[] {
  const engine = findEngine(settings, system) === undefined ? planEngine(request, settings, system) : [];
  const library = needsWintun(system) ? planWintun(wintunRequest, settings, system) : [];
  if (!runsServices(system)) return [...engine, ...library];
  const modes = [...readModes(settings.configRoot).filter(({ slug }) => slug !== added.slug), added];
  return [...engine, ...library, ...planChanges(planServices(modes, settings, system))];
}

const request = {
  source: "auto",
  version: undefined,
  file: undefined,
  sha256: undefined,
  releaseUrl: undefined,
} as const;

const wintunRequest = { version: undefined, releaseUrl: undefined, file: undefined };

/** Called before a registration uses its token: refuses programs that services must not run. */
export function requireStartable(settings: ServiceSettings, system: System): void {
  if (runsServices(system)) requireSafePrograms(settings, system);
}

function runsServices(system: System): boolean {
  return serviceManager(system) !== undefined && system.isRoot;
}

export async function startOverlay(
  mode: Mode,
  slug: string,
  settings: ServiceSettings,
  { system, log }: { system: System; log: Log },
): Promise<Started> {
  await provideEngine(settings, { system, log });
  await decideForFirstStart(slug, settings, system).catch((error: unknown) =>
    log.debug("The next check-in decides about offloads", { team: slug, reason: messageOf(error) }),
  );
  if (needsWintun(system)) await installWintun(wintunRequest, settings, system);
  if (!runsServices(system)) {
    const why = !system.isRoot ? "Only root can install services" : "systemd does not run on this machine";
    return {
      started: false,
      left: [
        `${why}, so no service was installed. Start the overlay by hand:`,
        `  ${byHand(mode, slug, settings, system)}`,
        // The daemon checks in by itself. An engine alone would get no news, and its certificate would expire.
        ...(mode === "server"
          ? ["and run this every minute, for news and renewals:", `  ${askByHand(settings, system)}`]
          : []),
      ],
    };
  }
  await applyChanges(planServices(readModes(settings.configRoot), settings, system), system);
  return { started: true, left: [] };
}

/**
 * Brings back the services of these organizations, where this machine runs services: a package that was removed and
 * installed again leaves units that do not run, or none. Without changes it costs one call of systemctl.
 */
export async function bringServices(
  teams: readonly Team[],
  settings: ServiceSettings,
  system: System,
): Promise<void> {
  if (!runsServices(system)) return;
  requireSafePrograms(settings, system);
  if (hasSystemd(system)) await unmaskAll(teams, system);
  await applyChanges(planServices(teams, settings, system, { onlyMissing: true }), system);
}

/** Also the engines: systemd refuses to enable a unit while another one of the call is masked. */
async function unmaskAll(teams: readonly Team[], system: System): Promise<void> {
  const units = teams.flatMap(({ slug, mode }) =>
    mode === "server" ? [authTimer, engineUnit(slug)] : [daemonUnit],
  );
  for (const unit of new Set(units)) await unmask(unit, system);
}

/** The plan of bringServices. */
export function planBringing(teams: readonly Team[], settings: ServiceSettings, system: System): Step[] {
  return runsServices(system)
    ? planChanges(planServices(teams, settings, system, { onlyMissing: true }))
    : [];
}

/** The registration did not know an engine that was installed after it. */
async function decideForFirstStart(slug: string, settings: ServiceSettings, system: System): Promise<void> {
  const engine = findEngine(settings, system);
  if (engine === undefined) return;
  const version = await engineVersion(engine.path, system).catch(() => undefined);
  const place = { slug, directory: join(settings.configRoot, slug) };
  await decideForStart(place, version, { command: `${brand.executable} register`, system });
}

/**
 * Installs an engine if there is none. Before the first organization of this machine, an old engine of the system's package
 * is replaced by the newest one that the signed list of releases has; else what it costs is said, once.
 */
export async function provideEngine(
  settings: ServiceSettings,
  { system, log }: { system: System; log: Log },
): Promise<void> {
  if (findEngine(settings, system) === undefined) {
    log.info("No overlay engine is installed yet; installing one");
    await installEngine(request, settings, { system, log });
  }
  const isFirst = readModes(settings.configRoot).length <= 1;
  const found = findEngine(settings, system);
  if (!isFirst || settings.overlayBinaryGiven || found?.source !== "package") return;
  const version = await engineVersion(found.path, system).catch(() => undefined);
  if (version === undefined || can(version, "offloads")) return;
  try {
    const newest = await newestListed(settings.stateDb, trustingControlPlanes(settings.configRoot, system));
    if (newest !== undefined && compareVersions(newest, version) > 0) {
      log.info(`The system's package has the old engine ${version}; installing ${newest}`);
      await installEngine({ ...request, source: "release", version: newest }, settings, { system, log });
      return;
    }
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    log.debug("No newer engine can be installed", { reason: error.message });
  }
  log.warn(costOf(version));
}

/** What an engine of a distribution lacks, as measured beside 1.12. */
function costOf(version: string): string {
  const newer = firstVersions.offloads.join(".");
  return (
    `Engine ${version} of the system's package is old: a tenth of the throughput of ${newer}, peers behind NATs that stay ` +
    `relayed, and up to 18 s without tunnels after a change of network. Install a newer one: ${brand.executable} overlay update`
  );
}

/** The command that systemd's timer runs in mode server. */
function askByHand({ configRoot }: ServiceSettings, system: Pick<System, "platform" | "env">): string {
  const usual = defaultPlaces(system.platform, system.env).configRoot;
  const where = configRoot === usual ? "" : ` --config-root ${quoteWord(configRoot)}`;
  return `${brand.executable} check-auth --all --wait 58${where}`;
}

/** The command that runs the overlay in the foreground. */
export function byHand(
  mode: Mode,
  slug: string,
  settings: ServiceSettings,
  system: Pick<System, "platform" | "env">,
): string {
  const engine = findEngine(settings, system)?.path ?? settings.overlayBinary;
  return mode === "server"
    ? `${quoteWord(engine)} -config ${quoteWord(join(settings.configRoot, slug, "config.yml"))}`
    : [daemonByHand(system), ...daemonArgs(settings, system.platform, system.env).map(quoteWord)].join(" ");
}
