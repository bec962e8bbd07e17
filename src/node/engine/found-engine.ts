// The engine of an organization that nobody here has started: by hand, by a container's init, or by a daemon that was
// killed. It is found by its arguments; it can be reloaded and stopped, but to start it again is its owner's affair.

import { join } from "node:path";
import { AppError } from "../../errors.ts";
import { readTextIfThere } from "../../files.ts";
import type { Log } from "../../log.ts";
import { findProcess, outputFileOf } from "../../platform/processes.ts";
import type { System } from "../../system.ts";
import { silence } from "../files/config-file.ts";
import { controlEngine, type TeamControl } from "./engine.ts";
import { fileLog, type LogSource } from "./engine-log.ts";
import type { Organization } from "../files/organizations.ts";
import {
  ageOf,
  identifyProcess,
  isAlive,
  signalProcess,
  type ProcessIdentity,
} from "../../platform/process-identity.ts";

const stopMs = 10_000;
/** SIGHUP kills an engine in its first moments, and nobody tells when it was ready. */
const settleMs = 2000;

/** Control over it; where none runs, there is nothing to do. */
export function foundEngine(
  { slug, directory }: Pick<Organization, "slug" | "directory">,
  system: Pick<System, "sleep" | "platform">,
  log: Log,
): TeamControl {
  const path = join(directory, "config.yml");
  const find = () => findEngine(path);
  const silent = silence(() => readTextIfThere(path) ?? "");
  const byHand = (what: string) =>
    log.warn(`${what}: it was not started by this program`, {
      team: slug,
      config: join(directory, "config.yml"),
    });
  return {
    running: async () => find() !== undefined,
    async reload() {
      const identity = find();
      if (identity === undefined) return;
      await system.sleep(Math.max(0, settleMs - ageOf(identity)));
      const source = logOf(identity);
      const engine = {
        process: () => identity,
        log: source ?? (() => ({ read: () => [] })),
        restart: () => Promise.resolve(),
        silent: () => source === undefined || silent(),
      };
      await controlEngine(engine, system).reload();
    },
    restart: async () =>
      byHand("Restart the overlay engine yourself to take up all of the new configuration"),
    async alive(ms) {
      const identity = find();
      if (identity === undefined) return;
      for (let waited = 0; waited < ms; waited += 50) {
        await system.sleep(50);
        if (!isAlive(identity)) throw new AppError("engine_failed", "The overlay engine ended");
      }
    },
    start: async () => byHand("Start the overlay engine yourself"),
    stop: () => stop(find(), system),
    wanted: async () => find() !== undefined,
  };
}

/** SIGTERM, and SIGKILL after 10 s. */
async function stop(identity: ProcessIdentity | undefined, system: Pick<System, "sleep">): Promise<void> {
  if (identity === undefined || !signalProcess(identity, "SIGTERM")) return;
  for (let waited = 0; waited < stopMs; waited += 20) {
    if (!isAlive(identity)) return;
    await system.sleep(20);
  }
  signalProcess(identity, "SIGKILL");
}

/** The file that the engine writes its log to, if it is one. */
function logOf({ pid }: ProcessIdentity): LogSource | undefined {
  const path = outputFileOf(pid);
  return path === undefined ? undefined : fileLog(path);
}

/**
 * The engine that runs with this configuration, wherever it came from: a daemon that was killed between the start and
 * the note of it has left one. Same user, same network namespace, and no other arguments.
 */
export function findEngine(configPath: string): ProcessIdentity | undefined {
  const pid = findProcess(["-config", configPath]);
  return pid === undefined ? undefined : identifyProcess(pid);
}
