// Restarts the running engines with a newly installed version. The control plane first renders for that version, so one
// restart applies both. If an engine does not start, the previous version is restored and all are restarted.

import { AppError, messageOf } from "../../errors.ts";
import type { Log } from "../../log.ts";
import { rollBack } from "../../release/replace.ts";
import type { System } from "../../system.ts";
import { checkIn } from "../contact/checkin.ts";
import { connectOrganization } from "../contact/connection.ts";
import { noEngine } from "../engine/engine.ts";
import { openOrganization } from "../files/organizations.ts";
import { syncOrganization } from "../contact/sync.ts";

export type RunningEngine = {
  slug: string;
  /** This process may change the organization's files. If the daemon runs it, only the daemon may. */
  ours: boolean;
  /** Resolves when the engine reports that it is active. */
  restart(): Promise<void>;
};

type Engine = { path: string; version: string };

/** Restarts the engines one after the other with the program at `path`, which was just replaced. */
export async function switchEngines(
  engines: readonly RunningEngine[],
  engine: Engine,
  configRoot: string,
  deps: { system: System; log: Log },
): Promise<void> {
  const restarted: RunningEngine[] = [];
  for (const running of engines) {
    const { slug } = running;
    restarted.push(running);
    if (running.ours) await renderFor(engine, slug, configRoot, deps);
    try {
      await running.restart();
    } catch (error) {
      rollBack(engine.path);
      for (const each of restarted) await each.restart();
      throw new AppError(
        "engine_failed",
        `${slug} does not run with ${engine.version}: ${messageOf(error)}`,
        { cause: error, hint: "The previous engine is restored and running." },
      );
    }
  }
}

/** If the control plane is unreachable, continue: the present configuration works with both versions. */
async function renderFor(
  engine: Engine,
  slug: string,
  configRoot: string,
  { system, log }: { system: System; log: Log },
): Promise<void> {
  const organization = openOrganization(configRoot, slug);
  const report = { overlayVersion: engine.version, overlayState: "running" as const };
  // No reload: the restart that follows reads the new files.
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
