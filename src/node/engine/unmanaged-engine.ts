// An engine that neither systemd nor the running daemon started: by hand, by a container's init, or by a killed daemon.
// Such an engine is found by its arguments. This program can reload and stop it, but only its user can start it again.

import { join } from "node:path";
import { readTextIfThere } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import { controlSocket } from "../../platform/systemd/control-socket.ts";
import { outputFileOf } from "../../platform/processes.ts";
import type { System } from "../../base/system.ts";
import { rememberSilence } from "../files/config/read-config.ts";
import { controlEngine, harmlessAgeMs, staysAlive, type OverlayControl } from "./control-engine.ts";
import { findEngineProcess } from "./engine-process.ts";
import { fileLog, type LogSource } from "./engine-log.ts";
import type { Organization } from "../files/organizations.ts";
import { ageOf, isAlive, signalProcess, type ProcessIdentity } from "../../platform/process-identity.ts";

const stopMs = 10_000;
const stopLookMs = 20;
const restartByHand = "Restart the overlay engine to apply all of the new configuration";

/**
 * Controls such an engine. `start` and `restart` only ask the user to do it, by a warning in the log. If no such engine runs, the
 * other methods do nothing.
 */
export function unmanagedEngine(
  { slug, directory }: Pick<Organization, "slug" | "directory">,
  system: Pick<System, "sleep" | "platform">,
  log: Log,
): OverlayControl {
  const path = join(directory, "config.yml");
  const find = () => findEngineProcess(path);
  // Made before config.yml is replaced: until the reload, the engine logs at the former level.
  const hidesMessages = rememberSilence(() => readTextIfThere(path) ?? "");
  /** Asks the user, since this program cannot start the engine. */
  const askUser = (what: string) =>
    log.warn(`${what}: this program did not start it`, { team: slug, config: path });
  return {
    running: async () => find() !== undefined,
    process: async () => find(),
    async reload() {
      const identity = find();
      if (identity === undefined) return;
      // SIGHUP kills an engine that is not ready yet, and without a log in a file nothing shows when it is.
      await system.sleep(Math.max(0, harmlessAgeMs - ageOf(identity)));
      const source = logOf(identity);
      const engine = {
        process: () => identity,
        log: source ?? (() => ({ read: () => [] })),
        controlSocket: controlSocket(directory),
        restart: async () => askUser(restartByHand),
        isSilent: () => source === undefined || hidesMessages(),
      };
      await controlEngine(engine, system).reload();
    },
    restart: async () => askUser(restartByHand),
    async alive(ms) {
      const identity = find();
      if (identity !== undefined) await staysAlive(identity, ms, system);
    },
    start: async () => askUser("Start the overlay engine"),
    stop: () => stop(find(), system),
    // What its user wants is unknown, and this program cannot start it.
    wanted: async () => false,
  };
}

/** Sends SIGTERM, and SIGKILL after 10 s. */
async function stop(identity: ProcessIdentity | undefined, system: Pick<System, "sleep">): Promise<void> {
  if (identity === undefined || !signalProcess(identity, "SIGTERM")) return;
  for (let waited = 0; waited < stopMs; waited += stopLookMs) {
    if (!isAlive(identity)) return;
    await system.sleep(stopLookMs);
  }
  signalProcess(identity, "SIGKILL");
}

/** The log of an engine that writes to a file. */
function logOf({ pid }: ProcessIdentity): LogSource | undefined {
  const path = outputFileOf(pid);
  return path === undefined ? undefined : fileLog(path);
}
