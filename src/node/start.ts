// What follows a registration: an engine where none is installed, and the services that run it. What this machine
// cannot do is said, with the line that does it by hand; it is no failure (decisions 11).

import { join } from "node:path";
import { brand } from "../brand.ts";
import type { Log } from "../log.ts";
import { applyChanges, planChanges } from "../platform/apply.ts";
import type { Team } from "../platform/systemd.ts";
import { quoteWord, type Step } from "../plan.ts";
import type { Mode } from "../protocol.ts";
import type { System } from "../system.ts";
import { installEngine, planEngine } from "./overlay-install.ts";
import { findEngine } from "./overlay.ts";
import { hasSystemd, planSystemdServices, readTeams, type ServiceSettings } from "./services.ts";

export type Started = {
  started: boolean;
  /** Sentences: what was left out, and the line that starts the overlay by hand. */
  left: string[];
};

/** The steps of startTeam, for --dry-run. `team` is not in the configuration root yet. */
export function planStart(team: Team, settings: ServiceSettings, system: System): Step[] {
  const engine = findEngine(settings, system) === undefined ? planEngine(request, settings, system) : [];
  if (!runsServices(system)) return engine;
  const teams = [...readTeams(settings.configRoot).filter(({ slug }) => slug !== team.slug), team];
  return [...engine, ...planChanges(planSystemdServices(teams, settings, system))];
}

const request = {
  source: "auto",
  version: undefined,
  file: undefined,
  sha256: undefined,
  releaseUrl: undefined,
} as const;

function runsServices({ platform, isRoot }: System): boolean {
  return platform === "linux" && hasSystemd() && isRoot;
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
  if (!runsServices(system)) {
    const why = !system.isRoot ? "Only root installs services" : "systemd does not run on this machine";
    return {
      started: false,
      left: [
        `${why}: no service was installed. Start the overlay by hand:`,
        `  ${byHand(mode, slug, settings, system)}`,
      ],
    };
  }
  await applyChanges(planSystemdServices(readTeams(settings.configRoot), settings, system), system);
  return { started: true, left: [] };
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
    : `${brand.executable} --ipc-mode socket`;
}
