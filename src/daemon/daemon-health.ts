// The health of one organization that the daemon runs: connects its observation to the supervised engine, and heals it.

import { release } from "node:os";
import { dirname } from "node:path";
import { worstDisk } from "../base/disk-space.ts";
import { because } from "../base/errors.ts";
import { writeFileAtomic } from "../base/files.ts";
import type { Log } from "../base/log.ts";
import { lastLines } from "../node/engine/engine-log.ts";
import type { EngineControl } from "../node/engine/control-engine.ts";
import { localApi } from "../node/engine/local-api.ts";
import { decideForStart } from "../node/files/config/rewrite-config.ts";
import { readLocalChanges } from "../node/files/config/local-changes.ts";
import { applyChanges } from "../node/health/apply-changes.ts";
import { hangLog, HangWatch, tunnelsOrRestart } from "../node/health/hanging-engine.ts";
import { Healer } from "../node/health/healer.ts";
import { keptHere } from "../node/health/paths/kept-peers-here.ts";
import { OffloadTrial } from "../node/health/paths/offload-trial.ts";
import { OrganizationHealth } from "../node/health/organization-health.ts";
import { unreachedNetworks } from "../node/routing/router-file.ts";
import { controlSocket } from "../platform/systemd/control-socket.ts";
import type { OpenEcho } from "../platform/network/echo-socket.ts";
import { isSameProcess, ageOf, signalProcess, type ProcessIdentity } from "../platform/process-identity.ts";
import type { System } from "../base/system.ts";

export type DaemonHealthDeps = {
  system: Pick<System, "now" | "monotonic" | "sleep" | "random" | "machineState" | "lookup">;
  openEcho: OpenEcho;
  /** Undefined if unknown. */
  engineVersion(process: ProcessIdentity): Promise<string | undefined>;
  log: Log;
};

type Supervised = {
  process(): ProcessIdentity | undefined;
  control: Pick<EngineControl, "reload" | "restart">;
  /** The shown health has changed. */
  onChange(): void;
};

const logLines = 500;
/** How long an engine writes its goroutines after SIGQUIT. */
const dumpMs = 2000;

export function makeDaemonHealth(
  place: { slug: string; directory: string; logPath: string },
  supervised: Supervised,
  { system, openEcho, engineVersion, log }: DaemonHealthDeps,
): OrganizationHealth {
  const { slug, directory, logPath } = place;
  /** The process whose version was asked for last. */
  let lastAsked: { process: ProcessIdentity; version: string | undefined } | undefined;
  const api = localApi(controlSocket(directory), system);
  const applyDeps = { command: "daemon", control: supervised.control, system };
  const healer = new Healer(
    { slug, api, apply: (healing) => applyChanges(place, { healing }, applyDeps), log },
    readLocalChanges(directory),
    system.monotonic(),
  );
  const hangWatch = new HangWatch();
  // Proves that the engine's offloads carry traffic here, and turns them off if they do not.
  const offloads = new OffloadTrial({
    place,
    kernel: release(),
    decide: (engine) => decideForStart(place, engine, applyDeps),
    restart: () => supervised.control.restart(),
    log,
    open: openEcho,
    system,
  });

  /** Does not reject: its caller does not wait for it. */
  async function restartHung(process: ProcessIdentity): Promise<void> {
    log.error("An engine hangs: its control socket is silent and no peer answers. Restarting it", {
      team: slug,
      pid: process.pid,
      kept: hangLog(logPath),
    });
    // SIGQUIT: the engine writes a dump of its goroutines, and ends.
    try {
      signalProcess(process, "SIGQUIT");
      await system.sleep(dumpMs).catch(() => undefined);
      writeFileAtomic(hangLog(logPath), `${lastLines(logPath, logLines).join("\n")}\n`, 0o600);
      if (isSameProcess(supervised.process(), process)) await supervised.control.restart();
    } catch (error) {
      log.error("Cannot restart an engine that hangs", because(slug, error));
    }
  }

  const health: OrganizationHealth = new OrganizationHealth(place, {
    system,
    monotonic: system.monotonic,
    open: openEcho,
    async engine() {
      const process = supervised.process();
      if (process === undefined) return undefined;
      if (lastAsked === undefined || !isSameProcess(lastAsked.process, process))
        lastAsked = { process, version: await engineVersion(process) };
      return { pid: process.pid, version: lastAsked.version, ageMs: ageOf(process) };
    },
    tunnels: () =>
      tunnelsOrRestart(hangWatch, {
        api,
        process: supervised.process,
        answeredAt: () => health.prober.lastAnswer,
        monotonic: system.monotonic,
        restart: restartHung,
      }),
    disk: () => worstDisk([directory, dirname(logPath)]),
    unreached: () => unreachedNetworks(directory),
    recentLog: async () => lastLines(logPath, logLines),
    healer,
    offloads,
    // Keeps the addresses of peers for the time without a lighthouse.
    kept: keptHere(place, applyDeps, { monotonic: system.monotonic, system, log }),
    onChange: supervised.onChange,
  });
  return health;
}
