import { expect, test } from "bun:test";
import { within } from "../../src/base/within.ts";

/** A sleep that ends when told, and rejects when aborted. */
function makeSleep() {
  const slept = Promise.withResolvers<void>();
  const signals: AbortSignal[] = [];
  return {
    end: slept.resolve,
    signals,
    sleep(_ms: number, signal?: AbortSignal) {
      if (signal !== undefined) signals.push(signal);
      signal?.addEventListener("abort", () => slept.reject(signal.reason));
      return slept.promise;
    },
  };
}

test("work that ends in time gives its result or its failure, and the wait ends with it", async () => {
  const [first, second] = [makeSleep(), makeSleep()];
  expect(await within(first, 5, Promise.resolve("done"), "late")).toBe("done");
  expect(first.signals.map(({ aborted }) => aborted)).toEqual([true]);
  const failed = within(second, 5, Promise.reject(new Error("failed")), "late");
  expect(await failed.catch(String)).toBe("Error: failed");
});

test("work that takes longer gives the other result, and may fail later", async () => {
  const system = makeSleep();
  const work = Promise.withResolvers<string>();
  const result = within(system, 5, work.promise, "late");
  system.end();
  expect(await result).toBe("late");
  work.reject(new Error("failed"));
});
