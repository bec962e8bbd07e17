// The engine's lifecycle over thousands of random histories in a simulated world: processes that fail to start, die or
// ignore SIGTERM; users who change their mind; pids that are reused.

import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import {
  backoffMs,
  graceMs,
  initialState,
  settledMs,
  step,
  wakeAt,
  type Effect,
  type EngineEvent,
  type EngineState,
} from "../../src/daemon/lifecycle.ts";
import type { ProcessIdentity } from "../../src/platform/process-identity.ts";

type Process = { identity: ProcessIdentity; stubborn: boolean; reported: boolean; alive: boolean };

/** Operating system and supervisor as far as `step` can notice them. Checks the invariants after each event. */
class World {
  state: EngineState = initialState;
  now = 0;
  /** Start requests without an answer yet. */
  starting = 0;
  /** All processes of this organization, also those that ended. */
  readonly processes: Process[] = [];
  #started = 0;

  send(event: EngineEvent): void {
    const [state, effects] = step(this.state, event, this.now);
    this.state = state;
    for (const effect of effects) this.#carryOut(effect);
    expect(this.living().length + this.starting).toBeLessThanOrEqual(1);
  }

  living(): Process[] {
    return this.processes.filter((process) => process.alive);
  }

  #carryOut(effect: Effect): void {
    if (effect.do === "start") {
      this.starting += 1;
      return;
    }
    const target = this.processes.find((process) => process.identity === effect.process);
    // Never signal a process after its reported end: its pid may be reused.
    expect(target).toBeDefined();
    expect(target?.reported).toBe(false);
    if (target === undefined) return;
    if (effect.do === "reload") expect(this.state.phase).toMatchObject({ is: "running", ready: true });
    else if (effect.signal === "SIGKILL" || !target.stubborn) target.alive = false;
  }

  answerStart(outcome: "spawned" | "stubborn" | "failed", chance: number): void {
    if (this.starting === 0) return;
    this.starting -= 1;
    if (outcome === "failed") return this.send({ type: "startFailed", chance });
    this.send({ type: "started", process: this.#make(outcome === "stubborn").identity });
  }

  /** Pids are reused: only the start time distinguishes two processes. */
  #make(stubborn: boolean): Process {
    const identity = { pid: 100 + (this.#started % 2), started: `boot:${++this.#started}` };
    const process = { identity, stubborn, reported: false, alive: true };
    this.processes.push(process);
    return process;
  }

  adopt(livedMs: number, ready: boolean): void {
    if (this.starting > 0 || this.living().length > 0) return;
    if (this.state.phase.is !== "stopped" && this.state.phase.is !== "waiting") return;
    this.send({ type: "adopted", process: this.#make(false).identity, livedMs, ready });
  }

  kill(): void {
    for (const process of this.living()) process.alive = false;
  }

  reportExits(chance: number): void {
    for (const process of this.processes) {
      if (process.alive || process.reported) continue;
      process.reported = true;
      this.send({ type: "exited", process: process.identity, chance });
    }
  }

  sayReady(): void {
    const process = this.living()[0] ?? this.processes.at(-1);
    if (process !== undefined) this.send({ type: "ready", process: process.identity });
  }

  pass(ms: number): void {
    this.now += ms;
    this.send({ type: "tick" });
  }

  /** From now on nothing fails: the desired state must be reached. */
  settle(): void {
    for (let round = 0; round < 12; round++) {
      this.answerStart("spawned", 0);
      this.reportExits(0);
      this.sayReady();
      const wake = wakeAt(this.state);
      if (wake !== undefined) this.pass(Math.max(0, wake - this.now));
    }
  }
}

const chance = fc.double({ min: 0, max: 0.999, noNaN: true });

/** One random event as a function of the world. */
const happening = fc.oneof(
  fc.constantFrom("up", "down").map((wanted) => (world: World) => world.send({ type: "want", wanted })),
  fc.constant((world: World) => world.send({ type: "restart" })),
  fc.constant((world: World) => world.send({ type: "reload" })),
  fc.tuple(fc.constantFrom("spawned", "stubborn", "failed"), chance).map(
    ([outcome, chance]) =>
      (world: World) =>
        world.answerStart(outcome, chance),
  ),
  fc.constant((world: World) => world.sayReady()),
  fc.constant((world: World) => world.kill()),
  chance.map((chance) => (world: World) => world.reportExits(chance)),
  fc.nat(120_000).map((ms) => (world: World) => world.pass(ms)),
  fc.tuple(fc.nat(100_000), fc.boolean()).map(
    ([lived, ready]) =>
      (world: World) =>
        world.adopt(lived, ready),
  ),
);

test("3,000 random histories of 100 events keep every invariant", () => {
  const histories = fc.array(happening, { minLength: 100, maxLength: 100 });
  fc.assert(
    fc.property(histories, (history) => {
      const world = new World();
      for (const happen of history) happen(world);
      world.settle();
      const up = world.state.wanted === "up";
      expect(world.starting).toBe(0);
      expect(world.living()).toHaveLength(up ? 1 : 0);
      expect(world.state.phase.is).toBe(up ? "running" : "stopped");
    }),
    { numRuns: 3000 },
  );
}, 120_000);

describe("one engine", () => {
  const process = { pid: 7, started: "boot:1" };
  const running = (since: number): EngineState => ({
    wanted: "up",
    phase: { is: "running", process, since, ready: true, reloadOwed: false },
    failures: 3,
  });

  test("an engine that ends is restarted after its delay, not before", () => {
    const [waiting] = step(running(0), { type: "exited", process, chance: 0 }, 5000);
    expect(waiting).toEqual({ wanted: "up", phase: { is: "waiting", until: 13_000 }, failures: 4 });
    expect(step(waiting, { type: "tick" }, 12_999)[1]).toEqual([]);
    expect(step(waiting, { type: "tick" }, 13_000)[1]).toEqual([{ do: "start" }]);
  });

  test("the delay is reset after a minute of running", () => {
    const [waiting] = step(running(0), { type: "exited", process, chance: 0 }, settledMs);
    expect(waiting.phase).toEqual({ is: "waiting", until: settledMs + 1000 });
    expect(waiting.failures).toBe(1);
  });

  test("delays double from 1 s to 60 s, plus up to half at random", () => {
    const delays = [0, 1, 2, 3, 4, 5, 6, 7, 50].map((failures) => backoffMs(failures, 0));
    expect(delays).toEqual([1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    expect(backoffMs(0, 0.5)).toBe(1250);
    expect(backoffMs(9, 0.999)).toBe(60_000);
  });

  test("a stop sends SIGTERM, and SIGKILL once after ten seconds", () => {
    const [stopping, effects] = step(running(0), { type: "want", wanted: "down" }, 100);
    expect(effects).toEqual([{ do: "signal", process, signal: "SIGTERM" }]);
    expect(wakeAt(stopping)).toBe(100 + graceMs);
    expect(step(stopping, { type: "tick" }, 99 + graceMs)[1]).toEqual([]);
    const [killed, more] = step(stopping, { type: "tick" }, 100 + graceMs);
    expect(more).toEqual([{ do: "signal", process, signal: "SIGKILL" }]);
    expect(wakeAt(killed)).toBeUndefined();
    expect(step(killed, { type: "tick" }, 200 + graceMs)[1]).toEqual([]);
    expect(step(killed, { type: "exited", process, chance: 0 }, 300 + graceMs)[0].phase.is).toBe("stopped");
  });

  test("a restart starts without delay after the end", () => {
    const [stopping] = step(running(0), { type: "restart" }, 0);
    const [starting, effects] = step(stopping, { type: "exited", process, chance: 0 }, 5);
    expect(starting.phase.is).toBe("starting");
    expect(effects).toEqual([{ do: "start" }]);
  });

  test("a reload waits for readiness, and happens once", () => {
    const [fresh] = step(
      { ...initialState, wanted: "up", phase: { is: "starting" } },
      { type: "started", process },
      0,
    );
    const [owed, none] = step(fresh, { type: "reload" }, 1);
    expect(none).toEqual([]);
    const [ready, effects] = step(owed, { type: "ready", process }, 2);
    expect(effects).toEqual([{ do: "reload", process }]);
    expect(step(ready, { type: "ready", process }, 3)[1]).toEqual([]);
  });

  test("the end of another process with the same pid changes nothing", () => {
    const state = running(0);
    expect(step(state, { type: "exited", process: { pid: 7, started: "boot:9" }, chance: 0 }, 9)).toEqual([
      state,
      [],
    ]);
  });

  test("a second process is killed at once", () => {
    const second = { pid: 8, started: "boot:2" };
    const [, effects] = step(running(0), { type: "started", process: second }, 9);
    expect(effects).toEqual([{ do: "signal", process: second, signal: "SIGKILL" }]);
  });
});
