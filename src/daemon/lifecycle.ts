// The life of one organization's engine as a pure function: state and event in, state and effects out. The desired state
// (`wanted`) is separate from the observed one (`phase`). Clock, processes and timers belong to the supervisor.

import { isSameProcess, type ProcessIdentity } from "../platform/process-identity.ts";

export type Phase =
  /** No process, none expected. */
  | { is: "stopped" }
  /** The supervisor starts a process and will report: started or startFailed. */
  | { is: "starting" }
  /** `reloadOwed`: a reload was requested before the engine could take one. */
  | { is: "running"; process: ProcessIdentity; since: number; ready: boolean; reloadOwed: boolean }
  | { is: "stopping"; process: ProcessIdentity; killAt: number; killed: boolean }
  /** The engine ended by itself or could not start; the next try is at `until`. */
  | { is: "waiting"; until: number };

export type EngineState = {
  wanted: "up" | "down";
  phase: Phase;
  /** Consecutive starts after which the engine did not live for `settledMs`. */
  failures: number;
};

/** `chance` is a random number in [0, 1), for the jitter. */
export type EngineEvent =
  | { type: "want"; wanted: "up" | "down" }
  | { type: "restart" }
  | { type: "reload" }
  | { type: "started"; process: ProcessIdentity }
  /** An engine of this organization was already running; it is `livedMs` old. */
  | { type: "adopted"; process: ProcessIdentity; livedMs: number; ready: boolean }
  | { type: "startFailed"; chance: number }
  | { type: "ready"; process: ProcessIdentity }
  | { type: "exited"; process: ProcessIdentity; chance: number }
  | { type: "tick" };

export type Effect =
  | { do: "start" }
  | { do: "signal"; process: ProcessIdentity; signal: "SIGTERM" | "SIGKILL" }
  | { do: "reload"; process: ProcessIdentity };

/** Time from SIGTERM to SIGKILL. */
export const graceMs = 10_000;
/** After this time the end of an engine no longer counts as a repeated failure. */
export const settledMs = 60_000;
const firstDelayMs = 1000;
const longestDelayMs = 60_000;

type Step = [EngineState, Effect[]];

export const initialState: EngineState = { wanted: "down", phase: { is: "stopped" }, failures: 0 };

/** `now`: milliseconds of a clock that never jumps. */
export function step(state: EngineState, event: EngineEvent, now: number): Step {
  switch (event.type) {
    case "want":
      return event.wanted === "up" ? wantUp(state) : wantDown(state, now);
    case "restart":
      return state.phase.is === "running"
        ? stop({ ...state, wanted: "up", failures: 0 }, state.phase.process, now)
        : wantUp(state);
    case "reload":
      return reload(state);
    case "started":
      return useProcess(state, event.process, { since: now, ready: false }, now);
    case "adopted":
      return useProcess(state, event.process, { since: now - event.livedMs, ready: event.ready }, now);
    case "startFailed":
      return state.phase.is === "starting" ? waitOrStop(state, event.chance, now) : [state, []];
    case "ready":
      return ready(state, event.process);
    case "exited":
      return exited(state, event, now);
    case "tick":
      return tick(state, now);
  }
}

/** When the state needs a tick; undefined if only an event changes it. */
export function wakeAt({ phase }: EngineState): number | undefined {
  if (phase.is === "waiting") return phase.until;
  return phase.is === "stopping" && !phase.killed ? phase.killAt : undefined;
}

/** Delay before the next try after so many failures in a row: 1 s, doubling to 60 s, plus up to half of it at random. */
export function backoffMs(failures: number, chance: number): number {
  const base = Math.min(longestDelayMs, firstDelayMs * 2 ** Math.min(failures, 10));
  return Math.min(longestDelayMs, base * (1 + chance / 2));
}

function wantUp(state: EngineState): Step {
  const next: EngineState = { ...state, wanted: "up" };
  const { is } = state.phase;
  return is === "stopped" || is === "waiting" ? start({ ...next, failures: 0 }) : [next, []];
}

function wantDown(state: EngineState, now: number): Step {
  const next: EngineState = { ...state, wanted: "down", failures: 0 };
  if (state.phase.is === "waiting") return [{ ...next, phase: { is: "stopped" } }, []];
  // While the engine is starting, its process is not known yet: the event `started` then stops it (useProcess).
  return state.phase.is === "running" ? stop(next, state.phase.process, now) : [next, []];
}

function start(state: EngineState): Step {
  return [{ ...state, phase: { is: "starting" } }, [{ do: "start" }]];
}

function stop(state: EngineState, process: ProcessIdentity, now: number): Step {
  return [
    { ...state, phase: { is: "stopping", process, killAt: now + graceMs, killed: false } },
    [{ do: "signal", process, signal: "SIGTERM" }],
  ];
}

/** An engine was started or adopted. */
function useProcess(
  state: EngineState,
  process: ProcessIdentity,
  life: { since: number; ready: boolean },
  now: number,
): Step {
  const { is } = state.phase;
  // Never two engines: kill the second one.
  if (is === "running" || is === "stopping") {
    return isSameProcess(state.phase.process, process)
      ? [state, []]
      : [state, [{ do: "signal", process, signal: "SIGKILL" }]];
  }
  if (state.wanted === "down") return stop(state, process, now);
  return [{ ...state, phase: { is: "running", process, ...life, reloadOwed: false } }, []];
}

/** Reloads an engine that is ready: SIGHUP kills one in its first moments. An engine that is starting reads the new files anyway. */
function reload(state: EngineState): Step {
  const { phase } = state;
  if (phase.is !== "running") return [state, []];
  if (phase.ready) return [state, [{ do: "reload", process: phase.process }]];
  return [{ ...state, phase: { ...phase, reloadOwed: true } }, []];
}

function ready(state: EngineState, process: ProcessIdentity): Step {
  const { phase } = state;
  if (phase.is !== "running" || phase.ready || !isSameProcess(phase.process, process)) return [state, []];
  return [
    { ...state, phase: { ...phase, ready: true, reloadOwed: false } },
    phase.reloadOwed ? [{ do: "reload", process }] : [],
  ];
}

function exited(state: EngineState, event: { process: ProcessIdentity; chance: number }, now: number): Step {
  const { phase } = state;
  if ((phase.is !== "running" && phase.is !== "stopping") || !isSameProcess(phase.process, event.process))
    return [state, []];
  if (phase.is === "running") {
    const settled = now - phase.since >= settledMs;
    return waitOrStop(settled ? { ...state, failures: 0 } : state, event.chance, now);
  }
  return state.wanted === "up" ? start(state) : [{ ...state, phase: { is: "stopped" } }, []];
}

/** No process is left: wait for the next try, or stay stopped. */
function waitOrStop(state: EngineState, chance: number, now: number): Step {
  if (state.wanted === "down") return [{ ...state, phase: { is: "stopped" } }, []];
  const until = now + backoffMs(state.failures, chance);
  return [{ ...state, phase: { is: "waiting", until }, failures: state.failures + 1 }, []];
}

function tick(state: EngineState, now: number): Step {
  const { phase } = state;
  if (phase.is === "waiting" && now >= phase.until) return start(state);
  if (phase.is === "stopping" && !phase.killed && now >= phase.killAt) {
    const effect = { do: "signal", process: phase.process, signal: "SIGKILL" } as const;
    return [{ ...state, phase: { ...phase, killed: true } }, [effect]];
  }
  return [state, []];
}
