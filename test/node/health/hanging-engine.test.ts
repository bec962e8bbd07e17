import { expect, test } from "bun:test";
import { AppError, messageOf } from "../../../src/base/errors.ts";
import { HangWatch, tunnelsOrRestart } from "../../../src/node/health/hanging-engine.ts";

const engine = { pid: 7, started: "1" };
const second = 1000;

test("an engine hangs after three questions without an answer, if no peer answers either", () => {
  const watch = new HangWatch();
  expect([100, 110, 120].map((at) => watch.noteMiss(engine, 60 * second, at * second))).toEqual([
    false,
    false,
    true,
  ]);
});

test("an engine that still carries traffic is left alone", () => {
  const watch = new HangWatch();
  for (let at = 100; at < 1000; at += 10)
    expect(watch.noteMiss(engine, (at - 10) * second, at * second)).toBe(false);
});

test("an answer, and another process, begin anew", () => {
  const watch = new HangWatch();
  const missed = (process: typeof engine, at: number) => watch.noteMiss(process, 0, at * second);
  expect([missed(engine, 100), missed(engine, 110)]).toEqual([false, false]);
  watch.noteAnswer();
  expect([missed(engine, 130), missed(engine, 140)]).toEqual([false, false]);
  const next = { pid: 8, started: "2" };
  expect([missed(next, 150), missed(next, 160), missed(next, 170)]).toEqual([false, false, true]);
});

test("it is restarted once an hour at most", () => {
  const watch = new HangWatch();
  let restarts = 0;
  for (let at = 100; at < 3700; at += 10) if (watch.noteMiss(engine, 0, at * second)) restarts += 1;
  expect(restarts).toBe(1);
});

test("a restart by an earlier process counts for an hour", () => {
  const watch = new HangWatch(90 * second);
  const missed = (at: number) => watch.noteMiss(engine, 0, at * second);
  expect([100, 110, 120, 3600].map(missed)).toEqual([false, false, false, false]);
  expect(missed(3700)).toBe(true);
});

test("a restart that a clock noted before it was set back by a day does not count", () => {
  const watch = new HangWatch(86_400 * second);
  const missed = (at: number) => watch.noteMiss(engine, 0, at * second);
  expect([100, 110, 120].map(missed)).toEqual([false, false, true]);
});

test("a silent socket restarts the engine at the third question, an absent one never", async () => {
  const restarted: number[] = [];
  let now = 100 * second;
  const asking = (cause?: Error) => ({
    api: {
      hostmap: () =>
        Promise.reject(new AppError("engine_unreachable", "silent", cause === undefined ? {} : { cause })),
    },
    process: () => engine,
    answeredAt: () => 0,
    monotonic: () => (now += 10 * second),
    restart: async ({ pid }: typeof engine) => void restarted.push(pid),
  });
  const [silent, absent] = [new HangWatch(), new HangWatch()];
  for (let at = 0; at < 4; at++) {
    expect(await tunnelsOrRestart(silent, asking(new Error("late"))).catch(messageOf)).toBe("silent");
    expect(await tunnelsOrRestart(absent, asking()).catch(messageOf)).toBe("silent");
  }
  expect(restarted).toEqual([7]);
});
