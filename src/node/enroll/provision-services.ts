// What follows a registration: an engine where none is installed, and the services that run it. What this machine
// cannot do is said, with the line that does it by hand; it is no failure (decisions 11).

import { join } from "node:path";
import { brand, defaultPlaces } from "../../brand.ts";
import type { Log } from "../../log.ts";
import { applyChanges, planChanges } from "../../platform/apply.ts";
import { daemonArgs } from "../../platform/daemon-args.ts";
import { daemonByHand, serviceManager } from "../../platform/service-manager.ts";
import type { Team } from "../../platform/systemd.ts";
import { needsWintun } from "../../platform/wintun.ts";
import { quoteWord, type Step } from "../../plan.ts";
import type { Mode } from "../../protocol.ts";
import type { System } from "../../system.ts";
import { installWintun, planWintun } from "./install-tap.ts";
import { installEngine, planEngine } from "../engine/overlay-install.ts";
import { findEngine } from "../engine/overlay.ts";
import { planServices, readTeams, requireSafePrograms, type ServiceSettings } from "./services.ts";

export type Started = {
  started: boolean;
  /** Sentences: what was left out, and the line that starts the overlay by hand. */
  left: string[];
};

/** The steps of startTeam, for --dry-run. `team` is not in the configuration root yet. */
export function planStart(team: Team, settings: ServiceSettings, system: System): Step[] {
  const engine = findEngine(settings, system) === undefined ? planEngine(request, settings, system) : [];
  const library = needsWintun(system) ? planWintun(wintunRequest, settings, system) : [];
  if (!runsServices(system)) return [...engine, ...library];
  const teams = [...readTeams(settings.configRoot).filter(({ slug }) => slug !== team.slug), team];
  return [...engine, ...library, ...planChanges(planServices(teams, settings, system))];
}

const request = {
  source: "auto",
  version: undefined,
  file: undefined,
  sha256: undefined,
  releaseUrl: undefined,
} as const;

const wintunRequest = { version: undefined, releaseUrl: undefined, file: undefined };

/** Asked before a registration uses up its token: refuses programs that the services could not be given. */
export function requireStartable(settings: ServiceSettings, system: System): void {
  if (runsServices(system)) requireSafePrograms(settings, system);
}

function runsServices(system: System): boolean {
  return serviceManager(system) !== undefined && system.isRoot;
}

export async function startTeam(
  mode: Mode,
  slug: string,
  settings: ServiceSettings,
  { system, log }: { system: System; log: Log },
): Promise<Started> {
  if (findEngine(settings, system) === undefined) {
    log.info("No overlay engine is installed yet; installing one");
    await installEngine(request, settings, { system, log });
  }
  if (needsWintun(system)) await installWintun(wintunRequest, settings, system);
  if (!runsServices(system)) {
    const why = !system.isRoot
      ? "Only the machine's administrator installs services"
      : "systemd does not run on this machine";
    return {
      started: false,
      left: [
        `${why}: no service was installed. Start the overlay by hand:`,
        `  ${byHand(mode, slug, settings, system)}`,
        // The daemon asks by itself; the engine alone would hear of nothing, and its certificate would run out.
        ...(mode === "server"
          ? ["and have this run every minute, for news and renewals:", `  ${askByHand(settings, system)}`]
          : []),
      ],
    };
  }
  await applyChanges(planServices(readTeams(settings.configRoot), settings, system), system);
  return { started: true, left: [] };
}

/** What systemd's timer runs in mode server. */
function askByHand({ configRoot }: ServiceSettings, system: Pick<System, "platform" | "env">): string {
  const usual = defaultPlaces(system.platform, system.env).configRoot;
  const where = configRoot === usual ? "" : ` --config-root ${quoteWord(configRoot)}`;
  return `${brand.executable} check-auth --all --wait 50${where}`;
}

/** The one line that runs the overlay in the foreground. */
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
