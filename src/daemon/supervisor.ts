// Supervises the engine of one organization: executes the effects that lifecycle.ts decides (start, signal, reload) and
// reports every outcome back to it as an event. It must not decide itself when the engine runs.

import { AppError, because, messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import {
  controlEngine,
  waitUntilReady,
  type EngineControl,
  type OverlayControl,
  harmlessAgeMs,
} from "../node/engine/control-engine.ts";
import { describe, lastComplaint, parseLogLine } from "../node/engine/log-lines.ts";
import { fileLog, lastLines, type LogTail } from "../node/engine/engine-log.ts";
import { isAlive, signalProcess, type ProcessIdentity } from "../platform/process-identity.ts";
import type { System } from "../base/system.ts";
import { initialState, step, wakeAt, type Effect, type EngineEvent, type EngineState } from "./lifecycle.ts";
import type { Spawned } from "./engine-processes.ts";

export type Launch = {
  /** The engine's program and arguments. */
  argv: readonly string[];
  /** The engine's log level hides readiness and reloads. */
  silent: boolean;
  /** The name of its interface; undefined if the system chooses one. */
  device: string | undefined;
};

/** How long a start waits for the interface of the last engine to go. */
const interfaceMs = 3000;

/** `startedAt` in ms since 1970. */
export type RunningProcess = ProcessIdentity & { startedAt: number };

export type SupervisorDeps = {
  slug: string;
  logPath: string;
  /** The address of the engine's control socket. */
  controlSocket: string | undefined;
  system: Pick<System, "now" | "monotonic" | "sleep" | "platform" | "random">;
  log: Log;
  /** Checks whether the engine may start now; throws the reason if not. Starts nothing. */
  prepare(): Promise<Launch>;
  /** Whether the log level of the present configuration hides readiness and reloads. */
  isSilent(): boolean;
  /** Whether the engine writes to `logPath`. An engine started by another program may write elsewhere. */
  writesLog(process: ProcessIdentity): boolean;
  hasInterface(device: string): boolean;
  /** A running engine of this organization, whichever program started it. */
  find(): ProcessIdentity | undefined;
  ageOf(process: ProcessIdentity): number;
  spawn(argv: readonly string[], logPath: string): Spawned;
  watchEnd(process: ProcessIdentity, signal: AbortSignal): Promise<string>;
  /** Records the engine's process, or that there is none, so that the next daemon finds it. */
  record(process: RunningProcess | undefined): void;
  /** The visible state has changed. */
  changed(): void;
};

/** A caller that waits for a state. */
type Waiter = {
  isDone(state: EngineState): boolean;
  isFailed(state: EngineState): boolean;
  /** The reason if it failed, and the engine gave none: another request came in between. */
  overtakenBy: string;
} & PromiseWithResolvers<void>;

const stoppedMeanwhile = "The overlay engine was stopped in between";
const startedMeanwhile = "The overlay engine was started again in between";

const isUp = ({ phase }: EngineState) => phase.is === "running" && phase.ready;
const isDown = ({ phase }: EngineState) => phase.is === "stopped";
const hasFailed = ({ phase, wanted }: EngineState) => phase.is === "waiting" || wanted === "down";
const isWantedUp = ({ wanted }: EngineState) => wanted === "up";

export class Supervisor {
  /** Used by the connection to the control plane. */
  readonly control: OverlayControl;
  readonly #deps: SupervisorDeps;
  readonly #engine: EngineControl;
  /** Aborted by release(): nothing is decided or reported afterwards. */
  readonly #released = new AbortController();
  readonly #waiters = new Set<Waiter>();
  /** Callers that wait for a reload. The next reload that begins serves all of them. */
  readonly #reloadRequests = new Set<PromiseWithResolvers<void>>();
  #state: EngineState;
  #process: RunningProcess | undefined;
  /** Why the engine does not run. */
  #message: string | undefined;
  /** Whether the log level that the engine runs with hides readiness. A reload can change it. */
  #silent = false;
  /** The engine was adopted and writes to another log. */
  #logsElsewhere = false;
  /** Ends the wait for the next tick of the state. */
  #timer: AbortController | undefined;
  /** Resolves after the last reload: there is one at a time. */
  #reloads = Promise.resolve();

  /** Starts nothing: the first call of `adopt` or `start` does. */
  constructor(wanted: EngineState["wanted"], deps: SupervisorDeps) {
    this.#deps = deps;
    this.#state = { ...initialState, wanted };
    this.#engine = controlEngine(
      {
        process: () => this.#process,
        log: fileLog(deps.logPath),
        controlSocket: deps.controlSocket,
        restart: () => this.restart(),
        isSilent: () => this.#logsElsewhere || this.#silent || deps.isSilent(),
      },
      deps.system,
    );
    this.control = {
      ...this.#engine,
      // True also between two tries, without a process: the next try then uses files that were changed.
      running: async () => this.#process !== undefined || (isWantedUp(this.#state) && !isDown(this.#state)),
      reload: () => this.#reload(),
      // Asked for by a new configuration, not by a user: a stopped engine stays stopped.
      restart: async () => (isWantedUp(this.#state) ? this.restart() : undefined),
      start: () => this.start(),
      stop: () => this.stop(),
    };
  }

  get state(): EngineState {
    return this.#state;
  }

  get process(): RunningProcess | undefined {
    return this.#process;
  }

  /** Why the engine does not run, in its own words where it logged any. */
  get message(): string | undefined {
    return this.#message;
  }

  /** Adopts the engine that an earlier daemon recorded, or one that is found; false if none runs. */
  adopt(recorded: ProcessIdentity | undefined): boolean {
    const { log, system, slug, ...deps } = this.#deps;
    const process = recorded !== undefined && isAlive(recorded) ? recorded : deps.find();
    if (process === undefined) return false;
    const livedMs = deps.ageOf(process);
    log.info("Engine adopted", { team: slug, pid: process.pid });
    this.#silent = deps.isSilent();
    this.#logsElsewhere = !deps.writesLog(process);
    this.#setProcess({ pid: process.pid, started: process.started, startedAt: system.now() - livedMs });
    this.#watchEnd(process, deps.watchEnd(process, this.#released.signal));
    // From this age on, SIGHUP does not end an engine, so it counts as ready.
    const ready = livedMs >= harmlessAgeMs;
    this.#dispatch({ type: "adopted", process, livedMs, ready });
    if (!ready) this.#dispatchAfter(harmlessAgeMs - livedMs, { type: "ready", process }, this.#released);
    return true;
  }

  /** Resolves once the engine is ready; rejects with the reason if this start fails. More tries follow. */
  start(): Promise<void> {
    return this.#wait({ type: "want", wanted: "up" }, isUp, hasFailed);
  }

  /** Resolves once no process is left. */
  stop(): Promise<void> {
    this.#message = undefined;
    return this.#wait({ type: "want", wanted: "down" }, isDown, isWantedUp, startedMeanwhile);
  }

  restart(): Promise<void> {
    return this.#wait({ type: "restart" }, isUp, hasFailed);
  }

  /** Stops supervising and leaves the engine running. */
  release(): void {
    this.#released.abort(new Error("Released"));
    this.#timer?.abort();
  }

  #dispatch(event: EngineEvent): void {
    if (this.#released.signal.aborted) return;
    const former = this.#state;
    const [next, effects] = step(former, event, this.#deps.system.monotonic());
    this.#state = next;
    // An effect can dispatch events itself; the timer then belongs to the last state.
    for (const effect of effects) this.#execute(effect);
    this.#setTimer();
    this.#settleWaiters();
    const { phase, wanted } = this.#state;
    if (former.phase.is !== phase.is || former.wanted !== wanted || event.type === "ready")
      this.#deps.changed();
  }

  /** Dispatches the event after this time, unless the controller aborts first. */
  #dispatchAfter(ms: number, event: EngineEvent, { signal }: AbortController): void {
    this.#deps.system.sleep(ms, signal).then(
      () => this.#dispatch(event),
      () => undefined,
    );
  }

  #setTimer(): void {
    this.#timer?.abort();
    const at = wakeAt(this.#state);
    if (at === undefined) return;
    this.#timer = new AbortController();
    this.#dispatchAfter(Math.max(0, at - this.#deps.system.monotonic()), { type: "tick" }, this.#timer);
  }

  #execute(effect: Effect): void {
    switch (effect.do) {
      case "start":
        void this.#launch();
        return;
      case "signal": {
        const { process, signal } = effect;
        this.#deps.log.info("Signal sent to an engine", { team: this.#deps.slug, pid: process.pid, signal });
        try {
          signalProcess(process, signal);
        } catch (error) {
          // The engine counts as running, and the next step of its end follows.
          this.#deps.log.error(messageOf(error), { team: this.#deps.slug });
        }
        return;
      }
      case "reload":
        this.#reloads = this.#reloads.then(() => this.#reloadOnce());
        return;
    }
  }

  async #launch(): Promise<void> {
    const { log, slug, logPath, system, ...deps } = this.#deps;
    let spawned: Spawned;
    let tail: LogTail;
    try {
      const { argv, silent, device } = await deps.prepare();
      await this.#waitForInterface(device);
      if (this.#released.signal.aborted) return;
      // Adopt an unrecorded engine of an earlier daemon instead of starting a second one.
      if (this.adopt(undefined)) return;
      // It was stopped while all this took time.
      // No delay follows, so its jitter does not matter.
      if (this.#state.wanted === "down") return this.#dispatch({ type: "startFailed", chance: 0 });
      this.#silent = silent;
      this.#logsElsewhere = false;
      tail = fileLog(logPath)();
      spawned = deps.spawn(argv, logPath);
    } catch (error) {
      this.#message = messageOf(error);
      log.warn("Cannot start an engine", { team: slug, reason: this.#message });
      return this.#dispatch({ type: "startFailed", chance: this.#chance() });
    }
    const { process } = spawned;
    if (process === undefined) {
      this.#message = this.#endedBecause(await spawned.ended);
      return this.#dispatch({ type: "startFailed", chance: this.#chance() });
    }
    log.info("Engine started", { team: slug, pid: process.pid });
    this.#setProcess({ ...process, startedAt: system.now() });
    this.#watchEnd(process, spawned.ended);
    this.#dispatch({ type: "started", process });
    void this.#watchReady(process, tail);
  }

  /** Waits until the interface is gone: an engine from 1.12 on refuses one that exists. If it stays, the engine's error names it. */
  async #waitForInterface(device: string | undefined): Promise<void> {
    const { hasInterface, system, find } = this.#deps;
    // If an unrecorded engine runs, the interface is its own: the caller adopts that engine.
    if (device === undefined || !hasInterface(device) || find() !== undefined) return;
    for (let waited = 0; waited < interfaceMs && hasInterface(device); waited += 20) await system.sleep(20);
  }

  #setProcess(process: RunningProcess | undefined): void {
    this.#process = process;
    this.#deps.record(process);
  }

  /** Reports the end of the engine. `ended`: resolves with the way it ended. */
  #watchEnd(process: ProcessIdentity, ended: Promise<string>): void {
    const { log, slug } = this.#deps;
    ended.then(
      (how) => {
        if (this.#released.signal.aborted) return;
        const isExpected = this.#state.phase.is === "stopping";
        this.#message = isExpected ? undefined : this.#endedBecause(how);
        if (!isExpected) log.warn("An engine ended by itself", { team: slug, pid: process.pid, how });
        if (this.#process?.started === process.started) this.#setProcess(undefined);
        this.#dispatch({ type: "exited", process, chance: this.#chance() });
      },
      () => undefined,
    );
  }

  /** Reports when the engine is ready. */
  async #watchReady(process: ProcessIdentity, tail: LogTail): Promise<void> {
    const { log, slug, system } = this.#deps;
    const isWatched = () => isAlive(process) && !this.#released.signal.aborted;
    try {
      await waitUntilReady(tail, isWatched, { silent: this.#silent }, system);
    } catch (error) {
      if (!isWatched()) return;
      // It has not reported in time. By now it is old enough to survive SIGHUP, so it counts as ready.
      log.warn("An engine runs but does not report that it is active", because(slug, error));
    }
    this.#message = undefined;
    this.#dispatch({ type: "ready", process });
  }

  /** Resolves when the engine has reloaded its files, or needs not. Rejects with the reason if it did not. */
  #reload(): Promise<void> {
    const { is } = this.#state.phase;
    // A new configuration may mend the failure: try it now, not at the end of the delay.
    if (is === "waiting") return this.start();
    if (is !== "running") return Promise.resolve();
    const request = Promise.withResolvers<void>();
    this.#reloadRequests.add(request);
    this.#dispatch({ type: "reload" });
    return request.promise;
  }

  async #reloadOnce(): Promise<void> {
    const requests = [...this.#reloadRequests];
    this.#reloadRequests.clear();
    // The last reload has served all requests: it began after they came.
    if (requests.length === 0) return;
    try {
      await this.#engine.reload();
      this.#silent = this.#deps.isSilent();
      for (const request of requests) request.resolve();
    } catch (error) {
      this.#deps.log.warn("An engine did not reload", because(this.#deps.slug, error));
      for (const request of requests) request.reject(error);
    }
  }

  /** Dispatches the event and waits for the state that it should lead to. */
  #wait(
    event: EngineEvent,
    isDone: Waiter["isDone"],
    isFailed: Waiter["isFailed"],
    overtakenBy = stoppedMeanwhile,
  ): Promise<void> {
    const waiter: Waiter = { isDone, isFailed, overtakenBy, ...Promise.withResolvers<void>() };
    this.#dispatch(event);
    this.#waiters.add(waiter);
    this.#settleWaiters();
    return waiter.promise;
  }

  /** Resolves or rejects the callers whose wait the state has ended. Without an engine, no reload comes. */
  #settleWaiters(): void {
    const state = this.#state;
    for (const waiter of this.#waiters) {
      if (waiter.isDone(state)) waiter.resolve();
      else if (waiter.isFailed(state)) waiter.reject(this.#failure(waiter.overtakenBy));
      else continue;
      this.#waiters.delete(waiter);
    }
    if (state.phase.is === "running") return;
    for (const request of this.#reloadRequests) request.reject(this.#failure(stoppedMeanwhile));
    this.#reloadRequests.clear();
  }

  #failure(overtakenBy: string): AppError {
    return new AppError("engine_failed", this.#message ?? overtakenBy);
  }

  #endedBecause(how: string): string {
    return `The overlay engine ended (${how})${lastWords(this.#deps.logPath)}`;
  }

  /** A random number in [0, 1), for the jitter of delays. */
  #chance(): number {
    return (this.#deps.system.random(1)[0] ?? 0) / 256;
  }
}

/** ": reason", from the last error in the log; empty without one. */
function lastWords(path: string): string {
  const line = lastComplaint(lastLines(path, 20));
  if (line === undefined) return "";
  const parsed = parseLogLine(line);
  return `: ${(parsed === undefined ? line : describe(parsed)).slice(0, 300)}`;
}
