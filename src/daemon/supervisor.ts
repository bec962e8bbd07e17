// Carries out for one team what lifecycle.ts decides: starts, signals, reloads, watches, remembers. Each of the
// outcomes goes back into it as an event; nothing is decided here.

import { AppError, messageOf } from "../errors.ts";
import type { Log } from "../log.ts";
import { controlEngine, describe, parseLogLine, waitUntilReady } from "../node/engine/engine.ts";
import { fileLog, lastLines, type LogTail } from "../node/engine/engine-log.ts";
import type { OverlayControl } from "../node/engine/engine.ts";
import { isAlive, signalProcess, type ProcessIdentity } from "../platform/process-identity.ts";
import type { System } from "../system.ts";
import { initialState, step, wakeAt, type Effect, type TeamEvent, type TeamState } from "./lifecycle.ts";
import type { Spawned } from "./processes.ts";

export type Launch = {
  /** The engine's program and arguments. */
  argv: readonly string[];
  /** Its log will not show readiness or reloads. */
  silent: boolean;
};

/** `startedAt` in ms since 1970. */
export type RunningProcess = ProcessIdentity & { startedAt: number };

export type SupervisorDeps = {
  team: string;
  logPath: string;
  system: Pick<System, "now" | "sleep" | "platform" | "random">;
  /** Milliseconds of a clock that never jumps. */
  monotonic(): number;
  log: Log;
  /** Looks whether the engine may start now; throws the reason if not. Nothing has been started when it throws. */
  prepare(): Promise<Launch>;
  /** Whether the present configuration's log level keeps readiness and reloads out of the log. */
  isSilent(): boolean;
  /** Whether the engine writes to `logPath`: one that others have started may not. */
  logsHere(process: ProcessIdentity): boolean;
  /** An engine of this team that runs already, whoever started it. */
  find(): ProcessIdentity | undefined;
  ageOf(process: ProcessIdentity): number;
  spawn(argv: readonly string[], logPath: string): Spawned;
  watchEnd(process: ProcessIdentity, signal: AbortSignal): Promise<string>;
  /** Notes the engine's process, or that there is none, so that the next daemon finds it. */
  remember(process: RunningProcess | undefined): void;
  /** Something that others can see has changed. */
  changed(): void;
};

export type Supervisor = {
  state(): TeamState;
  process(): RunningProcess | undefined;
  /** Why it is not running, the engine's own words where it had any. */
  message(): string | undefined;
  /** Takes up the engine that a former daemon noted, or one that is found; false if none runs. */
  adopt(noted: ProcessIdentity | undefined): boolean;
  /** Resolves once the engine is ready; rejects with the reason if this start fails (more tries follow). */
  start(): Promise<void>;
  /** Resolves once no process is left. */
  stop(): Promise<void>;
  restart(): Promise<void>;
  control: OverlayControl;
  /** Lets go of the engine without ending it. */
  release(): void;
};

const stoppedMeanwhile = "The overlay engine was stopped in between";

/** An adopted engine younger than this may still die of a SIGHUP. */
const harmlessAgeMs = 2000;

type Waiter = {
  done(state: TeamState): boolean;
  failed(state: TeamState): boolean;
  /** Why it fails where the engine has said nothing. */
  overtaken: string;
} & PromiseWithResolvers<void>;

/** `wanted` is only carried out by `adopt` and `start`. */
export function supervise(wanted: TeamState["wanted"], deps: SupervisorDeps): Supervisor {
  const { system, log, team } = deps;
  const released = new AbortController();
  let state: TeamState = { ...initialState, wanted };
  let current: RunningProcess | undefined;
  let message: string | undefined;
  /** By the level that the engine has; a reload may change it, in either direction. */
  let silent = false;
  /** It was taken over, and its log is elsewhere. */
  let unseen = false;
  let timer: AbortController | undefined;
  let reloads = Promise.resolve();
  const waiters = new Set<Waiter>();
  const reloaders = new Set<PromiseWithResolvers<void>>();

  function dispatch(event: TeamEvent): void {
    if (released.signal.aborted) return;
    const before = state;
    const [next, effects] = step(state, event, deps.monotonic());
    state = next;
    // Effects may bring about events themselves; the timer then belongs to the last state.
    for (const effect of effects) carryOut(effect);
    arm();
    settleWaiters();
    if (before.phase.is !== state.phase.is || before.wanted !== state.wanted || event.type === "ready")
      deps.changed();
  }

  function arm(): void {
    timer?.abort();
    const at = wakeAt(state);
    if (at === undefined) return;
    const own = (timer = new AbortController());
    const delay = Math.max(0, at - deps.monotonic());
    system.sleep(delay, own.signal).then(
      () => dispatch({ type: "tick" }),
      () => undefined,
    );
  }

  function carryOut(effect: Effect): void {
    switch (effect.do) {
      case "start":
        void launch();
        return;
      case "signal":
        log.info("Signal to an engine", { team, pid: effect.process.pid, signal: effect.signal });
        signalProcess(effect.process, effect.signal);
        return;
      case "reload":
        reloads = reloads.then(() => reloadNow());
        return;
    }
  }

  async function launch(): Promise<void> {
    let spawned: Spawned;
    let tail: LogTail;
    try {
      const { argv, silent: quiet } = await deps.prepare();
      if (released.signal.aborted) return;
      // A former daemon's engine that nobody has noted is taken up instead of getting a second one beside it.
      if (adopt(undefined)) return;
      if (state.wanted === "down") return dispatch({ type: "startFailed", chance: 0 });
      silent = quiet;
      unseen = false;
      tail = fileLog(deps.logPath)();
      spawned = deps.spawn(argv, deps.logPath);
    } catch (error) {
      message = messageOf(error);
      log.warn("An engine does not start", { team, reason: message });
      return dispatch({ type: "startFailed", chance: chance() });
    }
    const { process } = spawned;
    if (process === undefined) {
      message = endedBecause(await spawned.ended);
      return dispatch({ type: "startFailed", chance: chance() });
    }
    log.info("Engine started", { team, pid: process.pid });
    take({ ...process, startedAt: system.now() });
    watch(process, spawned.ended);
    dispatch({ type: "started", process });
    void watchReady(process, tail);
  }

  function adopt(noted: ProcessIdentity | undefined): boolean {
    const process = noted !== undefined && isAlive(noted) ? noted : deps.find();
    if (process === undefined) return false;
    const livedMs = deps.ageOf(process);
    log.info("Engine taken over as it runs", { team, pid: process.pid });
    silent = deps.isSilent();
    unseen = !deps.logsHere(process);
    take({ pid: process.pid, started: process.started, startedAt: system.now() - livedMs });
    watch(process, deps.watchEnd(process, released.signal));
    const ready = livedMs >= harmlessAgeMs;
    dispatch({ type: "adopted", process, livedMs, ready });
    if (!ready) {
      system.sleep(harmlessAgeMs - livedMs, released.signal).then(
        () => dispatch({ type: "ready", process }),
        () => undefined,
      );
    }
    return true;
  }

  function take(process: RunningProcess | undefined): void {
    current = process;
    deps.remember(process);
  }

  function watch(process: ProcessIdentity, ended: Promise<string>): void {
    ended.then(
      (how) => {
        if (released.signal.aborted) return;
        const expected = state.phase.is === "stopping";
        message = expected ? undefined : endedBecause(how);
        if (!expected) log.warn("An engine ended by itself", { team, pid: process.pid, how });
        if (current?.started === process.started) take(undefined);
        dispatch({ type: "exited", process, chance: chance() });
      },
      () => undefined,
    );
  }

  async function watchReady(process: ProcessIdentity, tail: LogTail): Promise<void> {
    try {
      await waitUntilReady(tail, () => isAlive(process) && !released.signal.aborted, { silent }, system);
    } catch (error) {
      if (!isAlive(process) || released.signal.aborted) return;
      // Old enough to take a SIGHUP, whatever it is busy with.
      log.warn("An engine runs and does not say that it is active", { team, reason: messageOf(error) });
    }
    message = undefined;
    dispatch({ type: "ready", process });
  }

  async function reloadNow(): Promise<void> {
    const asked = [...reloaders];
    reloaders.clear();
    // An earlier reload, begun after these were asked for, has served them already.
    if (asked.length === 0) return;
    try {
      await direct.reload();
      silent = deps.isSilent();
      for (const each of asked) each.resolve();
    } catch (error) {
      log.warn("An engine did not take a reload", { team, reason: messageOf(error) });
      for (const each of asked) each.reject(error);
    }
  }

  const direct = controlEngine(
    {
      process: () => current,
      log: fileLog(deps.logPath),
      restart: () => restart(),
      silent: () => unseen || silent || deps.isSilent(),
    },
    system,
  );

  function settleWaiters(): void {
    for (const waiter of waiters) {
      if (waiter.done(state)) waiter.resolve();
      else if (waiter.failed(state)) waiter.reject(failure(waiter.overtaken));
      else continue;
      waiters.delete(waiter);
    }
    if (state.phase.is === "running") return;
    for (const each of reloaders) each.reject(failure());
    reloaders.clear();
  }

  function failure(overtaken = stoppedMeanwhile): AppError {
    return new AppError("engine_failed", message ?? overtaken);
  }

  /** Sends the event and waits for what it is to bring about. */
  function wait(
    event: TeamEvent,
    done: Waiter["done"],
    failed: Waiter["failed"],
    overtaken = stoppedMeanwhile,
  ): Promise<void> {
    const waiter: Waiter = { done, failed, overtaken, ...Promise.withResolvers<void>() };
    dispatch(event);
    waiters.add(waiter);
    settleWaiters();
    return waiter.promise;
  }

  const isUp = ({ phase }: TeamState) => phase.is === "running" && phase.ready;
  const isGivenUp = ({ phase, wanted }: TeamState) => phase.is === "waiting" || wanted === "down";
  const isDown = ({ phase }: TeamState) => phase.is === "stopped";
  const restart = () => wait({ type: "restart" }, isUp, isGivenUp);
  const start = () => wait({ type: "want", wanted: "up" }, isUp, isGivenUp);
  const stop = () => {
    message = undefined;
    const isWantedAgain = ({ wanted }: TeamState) => wanted === "up";
    const startedMeanwhile = "The overlay engine was started again in between";
    return wait({ type: "want", wanted: "down" }, isDown, isWantedAgain, startedMeanwhile);
  };

  function reload(): Promise<void> {
    const { is } = state.phase;
    // Whoever brings a better configuration does not wait for the next try of the worse one.
    if (is === "waiting") return start();
    if (is !== "running") return Promise.resolve();
    const asked = Promise.withResolvers<void>();
    reloaders.add(asked);
    dispatch({ type: "reload" });
    return asked.promise;
  }

  function endedBecause(how: string): string {
    return `The overlay engine ended (${how})${lastWords(deps.logPath)}`;
  }

  function chance(): number {
    return (system.random(1)[0] ?? 0) / 256;
  }

  return {
    state: () => state,
    process: () => current,
    message: () => message,
    adopt,
    start,
    stop,
    restart,
    control: {
      ...direct,
      // Between two tries there is no process, but somebody to tell of better files.
      running: async () => current !== undefined || (state.wanted === "up" && !isDown(state)),
      reload,
      restart: async () => (state.wanted === "up" ? restart() : undefined),
      start,
      stop,
    },
    release() {
      released.abort(new Error("Let go"));
      timer?.abort();
    },
  };
}

/** ": reason", from the last complaint in the log. */
function lastWords(path: string): string {
  const complaint = lastLines(path, 20)
    .map(parseLogLine)
    .findLast((line) => line?.level === "error" || line?.level === "fatal");
  return complaint === undefined ? "" : `: ${describe(complaint).slice(0, 300)}`;
}
