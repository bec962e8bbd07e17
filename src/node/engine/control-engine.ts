// Controls a running engine by its process, its control socket and its log: waits until it is ready, reloads and restarts it. What
// starts and stops it (systemd, the daemon) gives the process and the log.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { clean } from "../../base/log.ts";
import { takesHangUp } from "../../platform/processes.ts";
import { isAlive, signalProcess, type ProcessIdentity } from "../../platform/process-identity.ts";
import type { System } from "../../base/system.ts";
import { needsRestart } from "../files/config/needs-restart.ts";
import type { StoppableEngine } from "../files/orders.ts";
import { maxReasonLength } from "./engine.ts";
import type { LogSource, LogTail } from "./engine-log.ts";
import { describe, isReady, parseLogLine, reloadEvidence, type EngineLine } from "./log-lines.ts";

/** Controls an organization's running engine. The daemon, systemd and the demo have implementations. */
export type EngineControl = {
  running(): Promise<boolean>;
  /** The engine's process; undefined if none runs. */
  process(): Promise<ProcessIdentity | undefined>;
  /**
   * Resolves when the engine's control socket, else its log, shows that the configuration is applied. Restarts the engine
   * for keys that it applies only at its start. Rejects with engine_failed.
   */
  reload(): Promise<void>;
  /** Resolves when the engine logs that it is active. */
  restart(): Promise<void>;
  /** Rejects if the engine ends within `ms`. */
  alive(ms: number): Promise<void>;
};

/** An engine that can be stopped and started. */
export type OverlayControl = EngineControl &
  StoppableEngine & {
    /**
     * Starts an engine that systemd did not start at a boot, because config.yml was gone then. Returns whether it did. Does not
     * throw.
     */
    startLeftOut?(): Promise<boolean>;
  };

/** Limit for a reload by SIGHUP. One with 20,000 blocklist entries takes 0.3 s. */
const reloadTimeoutMs = 10_000;
const readyTimeoutMs = 15_000;
/** From this age on, an engine is ready, and SIGHUP no longer kills it. */
export const harmlessAgeMs = 2000;
const lookEveryMs = 5;
const aliveEveryMs = 50;
/** If the log level hides the messages, an engine that runs for this time counts as ready, and a reload as done. */
const silentMs = 1500;
/** A multiple of `lookEveryMs`. */
const floodCheckMs = 1500;

/**
 * Waits until the log shows that the engine is active. If its log level hides that (`silent`), it only must not end for a while.
 * Throws engine_failed if `isRunning` returns false, with the engine's last error, or if the time is over.
 */
export async function waitUntilReady(
  tail: LogTail,
  isRunning: () => boolean,
  options: { silent: boolean; isFlooded?: () => Promise<boolean> },
  system: Pick<System, "sleep">,
): Promise<void> {
  let lastError = "";
  const waitMs = options.silent ? silentMs : readyTimeoutMs;
  for (let waited = 0; waited < waitMs; waited += lookEveryMs) {
    for (const line of tail.read().map(parseLogLine)) {
      if (line === undefined) continue;
      if (isReady(line)) return;
      if (line.level === "error" || line.level === "fatal")
        lastError = clean(describe(line), maxReasonLength);
    }
    if (!isRunning()) throw endedError(lastError);
    if (!options.silent && (await mayLackLines(waited, options))) return;
    await system.sleep(lookEveryMs);
  }
  if (!options.silent)
    throw new AppError("engine_failed", "The overlay engine did not become active in time");
}

/** `lastError`: empty if the engine logged none. */
function endedError(lastError: string): AppError {
  return new AppError("engine_failed", `The overlay engine ended: ${lastError || "no reason given"}`, {
    // About an engine that ended without an error, `doctor` knows nothing more.
    hint:
      lastError === ""
        ? `Its last lines may show why: \`${brand.executable} logs\`.`
        : `Find out why: \`${brand.executable} doctor\`.`,
  });
}

/**
 * Whether the log drops lines because of a flood, so that the expected line may never come. Checked every 1.5 s only: it costs a
 * process, and the caller holds the lock.
 */
async function mayLackLines(
  waited: number,
  { isFlooded }: Pick<RunningEngine, "isFlooded">,
): Promise<boolean> {
  return waited > 0 && waited % floodCheckMs === 0 && (await isFlooded?.()) === true;
}

export type RunningEngine = {
  /** The engine's present process; undefined if none runs. */
  process(): ProcessIdentity | undefined;
  log: LogSource;
  /** The address of its control socket. Engines below 1.12 have none. */
  controlSocket: string | undefined;
  /** Resolves when the restarted engine is active. */
  restart(): Promise<void>;
  /** Whether the log level hides the messages about start and reload. */
  isSilent?: () => boolean;
  /** Whether repeated errors fill the log, so that the system drops lines. A missing line then proves nothing. */
  isFlooded?: () => Promise<boolean>;
};

/** Controls an engine by its process and its log. */
export function controlEngine(
  engine: RunningEngine,
  system: Pick<System, "sleep" | "platform">,
): EngineControl {
  return {
    running: async () => engine.process() !== undefined,
    process: async () => engine.process(),
    reload: async () => {
      // Loaded on demand: most commands reload no engine.
      const { reloadByApi } = await import("./local-api.ts");
      const keys = await reloadByApi(engine.controlSocket, system);
      // Without a control socket: by SIGHUP, which Windows does not have.
      if (keys === undefined) return takesHangUp(system) ? hangUp(engine, system) : engine.restart();
      if (keys.some(needsRestart)) await engine.restart();
    },
    restart: () => engine.restart(),
    alive: (ms) => staysAlive(engine.process(), ms, system),
  };
}

/** Rejects with engine_failed if the process ends within `ms`, or if there is none. */
export async function staysAlive(
  identity: ProcessIdentity | undefined,
  ms: number,
  system: Pick<System, "sleep">,
): Promise<void> {
  const isRunning = () => identity !== undefined && isAlive(identity);
  for (let waited = 0; isRunning() && waited < ms; waited += aliveEveryMs)
    await system.sleep(Math.min(aliveEveryMs, ms - waited));
  if (!isRunning()) throw new AppError("engine_failed", "The overlay engine ended");
}

/**
 * Reloads by SIGHUP. Engines below 1.12 reload one after the other, and do not log the end of a reload. So a second SIGHUP follows:
 * when the log shows the beginning of that reload, the first one is complete and all its errors are logged. The second one changes
 * nothing. If messages are hidden or dropped, the reload counts as done unless an error was seen.
 */
async function hangUp(engine: RunningEngine, system: Pick<System, "sleep">): Promise<void> {
  const identity = engine.process();
  if (identity === undefined) throw new AppError("engine_failed", "The overlay engine does not run");
  const tail = engine.log();
  const signal = () => {
    if (!signalProcess(identity, "SIGHUP")) throw new AppError("engine_failed", "The overlay engine ended");
  };
  signal();
  const reload: ReloadEvidence = { begun: 0, applied: false, failure: "" };
  const silent = engine.isSilent?.() === true;
  for (let waited = 0; waited < (silent ? silentMs : reloadTimeoutMs); waited += lookEveryMs) {
    await system.sleep(lookEveryMs);
    for (const line of tail.read()) {
      const begunBefore = reload.begun;
      addEvidence(reload, parseLogLine(line));
      if (reload.begun === 1 && begunBefore === 0 && !silent) signal();
      if (reload.begun === 2) return requireApplied(reload);
    }
    if (!isAlive(identity)) throw new AppError("engine_failed", "The overlay engine ended while it reloaded");
    if (!silent && (await mayLackLines(waited, engine))) return requireApplied({ ...reload, applied: true });
  }
  if (!silent) throw new AppError("engine_failed", "The overlay engine's log shows no reload");
  requireApplied({ ...reload, applied: true });
}

/** What the log shows of the reload. `begun`: how many reloads began. `failure`: the first error; empty if there is none. */
type ReloadEvidence = { begun: number; applied: boolean; failure: string };

function addEvidence(reload: ReloadEvidence, line: EngineLine | undefined): void {
  const evidence = line === undefined ? undefined : reloadEvidence(line);
  if (line === undefined || evidence === undefined) return;
  if (evidence === "begun") reload.begun += 1;
  // Lines before our own "begun" belong to an earlier reload.
  if (reload.begun !== 1) return;
  if (evidence === "applied") reload.applied = true;
  if (evidence === "failed" && reload.failure === "") reload.failure = clean(describe(line), maxReasonLength);
}

function requireApplied({ failure, applied }: ReloadEvidence): void {
  if (failure !== "") {
    throw new AppError("engine_failed", `The overlay engine did not apply the configuration: ${failure}`);
  }
  if (!applied) throw new AppError("engine_failed", "The overlay engine did not reload its certificates");
}
