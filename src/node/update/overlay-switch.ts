// Moves the running engines over to a newly installed one: the control plane renders for its version first, so that
// one restart does for both. If an engine does not come up, the former one is put back and restarted.

import { AppError, messageOf } from "../../errors.ts";
import type { Log } from "../../log.ts";
import { rollBack } from "../../release/replace.ts";
import type { System } from "../../system.ts";
import { checkIn } from "../contact/checkin.ts";
import { connectOrganization } from "../contact/connection.ts";
import { noEngine } from "../engine/engine.ts";
import { openOrganization } from "../files/organizations.ts";
import { syncOrganization } from "../contact/sync.ts";

export type RunningTeam = {
  slug: string;
  /** Its files are ours to change now; those of a team that the daemon holds are the daemon's. */
  ours: boolean;
  /** Resolves when the engine says that it is active. */
  restart(): Promise<void>;
};

type Engine = { path: string; version: string };

/** Restarts the teams one after the other with the engine at `path`, which has just been replaced. */
export async function switchEngines(
  teams: readonly RunningTeam[],
  engine: Engine,
  configRoot: string,
  deps: { system: System; log: Log },
): Promise<void> {
  const moved: RunningTeam[] = [];
  for (const team of teams) {
    moved.push(team);
    if (team.ours) await renderFor(engine, team.slug, configRoot, deps);
    try {
      await team.restart();
    } catch (error) {
      rollBack(engine.path);
      for (const each of moved) await each.restart();
      throw new AppError(
        "engine_failed",
        `${team.slug} does not run with ${engine.version}: ${messageOf(error)}`,
        {
          cause: error,
          hint: "The former engine is back and running.",
        },
      );
    }
  }
}

/** A control plane that is away is no reason to keep an old engine: the present configuration works with both. */
async function renderFor(
  engine: Engine,
  slug: string,
  configRoot: string,
  { system, log }: { system: System; log: Log },
): Promise<void> {
  const organization = openOrganization(configRoot, slug);
  const report = { overlayVersion: engine.version, overlayState: "running" as const };
  // The files are swapped, and nothing is reloaded: the restart that follows reads them.
  const rest = { control: noEngine, engine: engine.path, command: "overlay update", log, system };
  try {
    await connectOrganization(
      organization,
      system,
      log,
    )(async (client) => {
      await checkIn(organization, client, report);
      return syncOrganization(organization, { client, ...rest });
    });
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    log.warn(`${slug} keeps its configuration for now: ${error.message}`);
  }
}
