// What becomes of one team's engine, as a pure function: state and event in, state and effects out. What is wanted
// and what is observed are kept apart. No clock, no process, no timer in here; the supervisor has those.

import type { ProcessIdentity } from "../platform/process-identity.ts";

export type Phase =
  /** No process, none expected. */
  | { is: "stopped" }
  /** The supervisor has been asked for a process and owes an answer: started or startFailed. */
  | { is: "starting" }
  /** `reloadOwed`: a reload was asked for before the engine could take one. */
  | { is: "running"; process: ProcessIdentity; since: number; ready: boolean; reloadOwed: boolean }
  | { is: "stopping"; process: ProcessIdentity; killAt: number; killed: boolean }
  /** The engine ended by itself or could not be started; the next try is at `until`. */
  | { is: "waiting"; until: number };

export type TeamState = {
  wanted: "up" | "down";
  phase: Phase;
  /** Starts in a row of which none lived for `settledMs`. */
  failures: number;
};

/** `chance` is a random number in [0, 1), for the jitter. */
export type TeamEvent =
  | { type: "want"; wanted: "up" | "down" }
  | { type: "restart" }
  | { type: "reload" }
  | { type: "started"; process: ProcessIdentity }
  /** An engine of this team that was running already, `livedMs` old. */
  | { type: "adopted"; process: ProcessIdentity; livedMs: number; ready: boolean }
  | { type: "startFailed"; chance: number }
  | { type: "ready"; process: ProcessIdentity }
  | { type: "exited"; process: ProcessIdentity; chance: number }
  | { type: "tick" };

export type Effect =
  | { do: "start" }
  | { do: "signal"; process: ProcessIdentity; signal: "SIGTERM" | "SIGKILL" }
  | { do: "reload"; process: ProcessIdentity };

/** From SIGTERM to SIGKILL. */
export const graceMs = 10_000;
/** An engine that lived this long has settled: its end is no repeated failure. */
export const settledMs = 60_000;
const firstDelayMs = 1000;
const longestDelayMs = 60_000;

type Step = [TeamState, Effect[]];

export const initialState: TeamState = { wanted: "down", phase: { is: "stopped" }, failures: 0 };

/** `now` in milliseconds of a clock that never jumps. */
export function step(state: TeamState, event: TeamEvent, now: number): Step {
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
      return take(state, event.process, { since: now, ready: false }, now);
    case "adopted":
      return take(state, event.process, { since: now - event.livedMs, ready: event.ready }, now);
    case "startFailed":
      return state.phase.is === "starting" ? rest(state, event.chance, now) : [state, []];
    case "ready":
      return ready(state, event.process);
    case "exited":
      return exited(state, event, now);
    case "tick":
      return tick(state, now);
  }
}

/** When the state wants a tick, undefined if only an event moves it. */
export function wakeAt({ phase }: TeamState): number | undefined {
  if (phase.is === "waiting") return phase.until;
  return phase.is === "stopping" && !phase.killed ? phase.killAt : undefined;
}

/** Delay before the next start after `failures` starts in a row: 1 s doubling to 60 s, up to half of it on top. */
export function backoffMs(failures: number, chance: number): number {
  const base = Math.min(longestDelayMs, firstDelayMs * 2 ** Math.min(failures, 10));
  return Math.min(longestDelayMs, base * (1 + chance / 2));
}

function wantUp(state: TeamState): Step {
  const wanting: TeamState = { ...state, wanted: "up" };
  const { is } = state.phase;
  return is === "stopped" || is === "waiting" ? start({ ...wanting, failures: 0 }) : [wanting, []];
}

function wantDown(state: TeamState, now: number): Step {
  const wanting: TeamState = { ...state, wanted: "down", failures: 0 };
  if (state.phase.is === "waiting") return [{ ...wanting, phase: { is: "stopped" } }, []];
  // While it is starting, the process that is owed gets its signal when it is known.
  return state.phase.is === "running" ? stop(wanting, state.phase.process, now) : [wanting, []];
}

function start(state: TeamState): Step {
  return [{ ...state, phase: { is: "starting" } }, [{ do: "start" }]];
}

function stop(state: TeamState, process: ProcessIdentity, now: number): Step {
  return [
    { ...state, phase: { is: "stopping", process, killAt: now + graceMs, killed: false } },
    [{ do: "signal", process, signal: "SIGTERM" }],
  ];
}

function take(
  state: TeamState,
  process: ProcessIdentity,
  life: { since: number; ready: boolean },
  now: number,
): Step {
  const { is } = state.phase;
  // There is one already: the newcomer must not stay beside it.
  if (is === "running" || is === "stopping") {
    return same(state.phase.process, process)
      ? [state, []]
      : [state, [{ do: "signal", process, signal: "SIGKILL" }]];
  }
  if (state.wanted === "down") return stop(state, process, now);
  return [{ ...state, phase: { is: "running", process, ...life, reloadOwed: false } }, []];
}

/** SIGHUP kills an engine in its first moments; one that is starting reads the new files anyway. */
function reload(state: TeamState): Step {
  const { phase } = state;
  if (phase.is !== "running") return [state, []];
  if (phase.ready) return [state, [{ do: "reload", process: phase.process }]];
  return [{ ...state, phase: { ...phase, reloadOwed: true } }, []];
}

function ready(state: TeamState, process: ProcessIdentity): Step {
  const { phase } = state;
  if (phase.is !== "running" || phase.ready || !same(phase.process, process)) return [state, []];
  return [
    { ...state, phase: { ...phase, ready: true, reloadOwed: false } },
    phase.reloadOwed ? [{ do: "reload", process }] : [],
  ];
}

function exited(state: TeamState, event: { process: ProcessIdentity; chance: number }, now: number): Step {
  const { phase } = state;
  if ((phase.is !== "running" && phase.is !== "stopping") || !same(phase.process, event.process))
    return [state, []];
  if (phase.is === "running") {
    const settled = now - phase.since >= settledMs;
    return rest(settled ? { ...state, failures: 0 } : state, event.chance, now);
  }
  return state.wanted === "up" ? start(state) : [{ ...state, phase: { is: "stopped" } }, []];
}

/** Nothing runs and nothing is under way: wait for the next try, or stay down. */
function rest(state: TeamState, chance: number, now: number): Step {
  if (state.wanted === "down") return [{ ...state, phase: { is: "stopped" } }, []];
  const until = now + backoffMs(state.failures, chance);
  return [{ ...state, phase: { is: "waiting", until }, failures: state.failures + 1 }, []];
}

function tick(state: TeamState, now: number): Step {
  const { phase } = state;
  if (phase.is === "waiting" && now >= phase.until) return start(state);
  if (phase.is === "stopping" && !phase.killed && now >= phase.killAt) {
    const effect = { do: "signal", process: phase.process, signal: "SIGKILL" } as const;
    return [{ ...state, phase: { ...phase, killed: true } }, [effect]];
  }
  return [state, []];
}

function same(a: ProcessIdentity, b: ProcessIdentity): boolean {
  return a.pid === b.pid && a.started === b.started;
}
