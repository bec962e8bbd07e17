// Work that takes milliseconds of the one thread: rendering configurations, packing them, testing rules. One piece runs at a
// time, then other requests get their chance. Organizations take turns, and so do the credentials of one (fair-queue.ts).
// Why this is no Worker: docs/design/less-of-our-own.md.

import { AppError } from "../../base/errors.ts";
import { makeFairQueue, type InTurn } from "./fair-queue.ts";

export type HeavyLimits = {
  /** A node or a script asks for one thing at a time. */
  perCaller: number;
  /** After a change, all nodes of an organization ask at once. */
  perOwner: number;
  /** After this much work, ms, other requests get their chance. */
  sliceMs: number;
  pause(): Promise<unknown>;
};

const defaults: HeavyLimits = { perCaller: 8, perOwner: 20_000, sliceMs: 2, pause: nextRound };

export function makeHeavyWork(limits: Partial<HeavyLimits> = {}): InTurn {
  const { sliceMs, pause, ...waiting } = { ...defaults, ...limits };
  // Kept across pieces of work: a hundred short requests in one round of the event loop must not run in a row.
  let spentMs = 0;
  return makeFairQueue({
    ...waiting,
    atOnce: 1,
    refusal: tooMuch,
    pauseAfter(ms) {
      spentMs += ms;
      if (spentMs < sliceMs) return undefined;
      spentMs = 0;
      return pause();
    },
  });
}

/**
 * Does long work in short slices: at each `yield`, other requests may get their chance. Several works may have a slice in the
 * same round of the event loop, and a request takes several rounds.
 */
export async function inSlices<T>(
  work: Generator<unknown, T>,
  sliceMs = 2,
  pause: () => Promise<unknown> = nextRound,
): Promise<T> {
  let since = performance.now();
  for (;;) {
    const step = work.next();
    if (step.done === true) return step.value;
    if (performance.now() - since < sliceMs) continue;
    await pause();
    since = performance.now();
  }
}

/** Runs the work without pauses. */
export function atOnce<T>(work: Generator<unknown, T>): T {
  for (;;) {
    const step = work.next();
    if (step.done === true) return step.value;
  }
}

/** A long list mapped, for work in slices. */
export function* mapInPieces<T, U>(
  list: Iterable<T>,
  each: (item: T, at: number) => U,
): Generator<unknown, U[]> {
  const mapped: U[] = [];
  for (const item of list) {
    mapped.push(each(item, mapped.length));
    if (mapped.length % 100 === 0) yield;
  }
  return mapped;
}

/** The JSON text of a value, made of pieces. Lists and objects in the first `depth` levels are written item by item. */
export function* jsonInPieces(value: unknown, depth = 3): Generator<unknown, string> {
  if (depth === 0 || typeof value !== "object" || value === null) {
    yield;
    return JSON.stringify(value);
  }
  const items: string[] = [];
  if (Array.isArray(value)) {
    for (const item of value) items.push(yield* jsonInPieces(item ?? null, depth - 1));
    return `[${items.join(",")}]`;
  }
  for (const [key, item] of Object.entries(value)) {
    if (item !== undefined) items.push(`${JSON.stringify(key)}:${yield* jsonInPieces(item, depth - 1)}`);
  }
  return `{${items.join(",")}}`;
}

/** Lets other requests have their chance. */
export function nextRound(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}

function tooMuch(): AppError {
  return new AppError(
    "throttled",
    "Too many requests of this kind wait already. Wait for their answers, then try again in 2 seconds.",
    { retryAfter: 2 },
  );
}
