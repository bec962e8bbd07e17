// Completes a registration: installs an engine if there is none, and the services that run it. If this machine cannot run
// services, the result has the command to type instead. That is not a failure.

import { join } from "node:path";
import { brand, defaultPlaces } from "../../brand.ts";
import { because } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import { applyChanges, planChanges } from "../../platform/machine-changes.ts";
import { daemonArgs } from "../../platform/daemon-args.ts";
import { daemonByHand, hasSystemd, serviceManager } from "../../platform/service-manager.ts";
import { unmask } from "../../platform/service-state.ts";
import { authTimer, daemonUnit, engineUnit, type OrganizationMode } from "../../platform/systemd/systemd.ts";
import { needsWintun } from "../../platform/windows/wintun.ts";
import type { Step } from "../../base/plan/plan.ts";
import { quoteWord } from "../../base/quote.ts";
import type { Mode } from "../../protocol/values.ts";
import type { System } from "../../base/system.ts";
import { installWintun, planWintun } from "./install-wintun.ts";
import { engineVersion } from "../engine/engine.ts";
import { findEngine } from "../engine/find-engine.ts";
import { decideForStart } from "../files/config/rewrite-config.ts";
import { planProvision, provideEngine, type Newcomer } from "./provide-engine.ts";
import { planServices, readModes, type ServiceSettings } from "./services.ts";
import { requireSafePrograms } from "./service-checks.ts";

export type Started = {
  started: boolean;
  /** Sentences: what was not done, and the command that starts the overlay by hand. */
  left: string[];
};

/** The plan of startOverlay, for --dry-run. `added` may not be in the configuration root yet. */
export async function planStart(
  added: OrganizationMode & Newcomer,
  settings: ServiceSettings,
  system: System,
): Promise<Step[]> {
  const engine = await planProvision(settings, system, added);
  const library = needsWintun(system) ? planWintun(wintunRequest, settings, system) : [];
  if (!runsServices(system)) return [...engine, ...library];
  const modes = [...readModes(settings.configRoot).filter(({ slug }) => slug !== added.slug), added];
  return [...engine, ...library, ...planChanges(planServices(modes, settings, system))];
}

const wintunRequest = { version: undefined, releaseUrl: undefined, file: undefined };

/** Called before a registration uses its token: refuses programs that services must not run. */
export function requireStartable(settings: ServiceSettings, system: System): void {
  if (runsServices(system)) requireSafePrograms(settings, system);
}

function runsServices(system: System): boolean {
  return serviceManager(system) !== undefined && system.isRoot;
}

/** Installs engine and services, and starts them. */
export async function startOverlay(
  mode: Mode,
  slug: string,
  settings: ServiceSettings,
  { system, log }: { system: System; log: Log },
): Promise<Started> {
  await provideEngine(settings, { system, log }, { slug });
  await decideForFirstStart(slug, settings, system).catch((error: unknown) =>
    log.debug("The next check-in decides about offloads", because(slug, error)),
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
          ? ["and run this every minute, for news and renewals:", `  ${checkInByHand(settings, system)}`]
          : []),
      ],
    };
  }
  await applyChanges(planServices(readModes(settings.configRoot), settings, system), system);
  return { started: true, left: [] };
}

/**
 * Installs and starts the services of these organizations again, if this machine runs services: a package that was removed and
 * installed again leaves units that do not run, or none. If nothing is to do, it costs one call of systemctl.
 */
export async function bringServices(
  organizations: readonly OrganizationMode[],
  settings: ServiceSettings,
  system: System,
): Promise<void> {
  if (!runsServices(system)) return;
  requireSafePrograms(settings, system);
  if (hasSystemd(system)) await unmaskAll(organizations, system);
  await applyChanges(planServices(organizations, settings, system, { onlyMissing: true }), system);
}

/** Also the units of engines: systemd refuses to enable a unit while another one of the same call is masked. */
async function unmaskAll(organizations: readonly OrganizationMode[], system: System): Promise<void> {
  const units = organizations.flatMap(({ slug, mode }) =>
    mode === "server" ? [authTimer, engineUnit(slug)] : [daemonUnit],
  );
  for (const unit of new Set(units)) await unmask(unit, system);
}

/** The plan of bringServices. */
export function planBringing(
  organizations: readonly OrganizationMode[],
  settings: ServiceSettings,
  system: System,
): Step[] {
  return runsServices(system)
    ? planChanges(planServices(organizations, settings, system, { onlyMissing: true }))
    : [];
}

/** Decides about offloads again: the registration did not know an engine that was installed after it. */
async function decideForFirstStart(slug: string, settings: ServiceSettings, system: System): Promise<void> {
  const engine = findEngine(settings, system);
  if (engine === undefined) return;
  const version = await engineVersion(engine.path, system).catch(() => undefined);
  const place = { slug, directory: join(settings.configRoot, slug) };
  await decideForStart(place, version, { command: `${brand.executable} register`, system });
}

/** The check-in that systemd's timer runs in server mode, as a command to type. */
function checkInByHand({ configRoot }: ServiceSettings, system: Pick<System, "platform" | "env">): string {
  const usualRoot = defaultPlaces(system.platform, system.env).configRoot;
  const where = configRoot === usualRoot ? "" : ` --config-root ${quoteWord(configRoot)}`;
  // As long as the timer's run keeps its check-in open (platform/systemd/units.ts).
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
