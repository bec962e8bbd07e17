// The queue of work that takes milliseconds of the one thread: rendering configurations, packing them, testing rules.
// One piece runs at a time, then other requests get their chance. Organizations take turns, and within an organization
// its credentials do, so that one with many requests delays another by one piece each time. Knows no route.

import { AppError } from "../../errors.ts";

/** On whose behalf work is done. `caller`: one credential. */
export type Turn = { orgId: number; caller: string };

/** Runs the work in turn. Throws throttled if too much of this caller or organization waits. */
export type InTurn = <T>(turn: Turn, work: () => T | Promise<T>) => Promise<T>;

export type HeavyLimits = {
  /** A node or a script asks for one thing at a time. */
  perCaller: number;
  /** After a change, all nodes of an organization ask at once. */
  perOrganization: number;
  /** After this much work, ms, other requests get their chance. */
  sliceMs: number;
  pause(): Promise<unknown>;
};

type Job = () => Promise<void>;
type Line = { count: number; callers: Map<string, Job[]> };

const defaults: HeavyLimits = { perCaller: 8, perOrganization: 20_000, sliceMs: 2, pause: nextRound };

export function makeHeavyWork(limits: Partial<HeavyLimits> = {}): InTurn {
  const { perCaller, perOrganization, sliceMs, pause } = { ...defaults, ...limits };
  const lines = new Map<number, Line>();
  let isRunning = false;
  // Kept from one run to the next: a hundred short requests in one round of the event loop must not run in a row.
  let spentMs = 0;
  const run = async () => {
    isRunning = true;
    for (let job = takeNext(lines); job !== undefined; job = takeNext(lines)) {
      const begun = performance.now();
      await job();
      spentMs += performance.now() - begun;
      if (spentMs < sliceMs) continue;
      await pause();
      spentMs = 0;
    }
    isRunning = false;
  };
  return async (turn, work) => {
    const came = Promise.withResolvers<undefined>();
    const ended = Promise.withResolvers<undefined>();
    add(lines, turn, { perCaller, perOrganization }, () => {
      came.resolve(undefined);
      return ended.promise;
    });
    if (!isRunning) void run();
    await came.promise;
    try {
      return await work();
    } finally {
      ended.resolve(undefined);
    }
  };
}

function add(
  lines: Map<number, Line>,
  { orgId, caller }: Turn,
  { perCaller, perOrganization }: Pick<HeavyLimits, "perCaller" | "perOrganization">,
  job: Job,
): void {
  const line = lines.get(orgId) ?? { count: 0, callers: new Map<string, Job[]>() };
  const jobs = line.callers.get(caller) ?? [];
  if (jobs.length >= perCaller || line.count >= perOrganization) throw tooMuch();
  jobs.push(job);
  line.count++;
  line.callers.set(caller, jobs);
  lines.set(orgId, line);
}

/** Maps keep the order of insertion: who had a turn goes to the end. */
function takeNext(lines: Map<number, Line>): Job | undefined {
  for (const [orgId, line] of lines) {
    lines.delete(orgId);
    for (const [caller, jobs] of line.callers) {
      line.callers.delete(caller);
      const job = jobs.shift();
      line.count--;
      if (jobs.length > 0) line.callers.set(caller, jobs);
      if (line.callers.size > 0) lines.set(orgId, line);
      return job;
    }
  }
  return undefined;
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

/** The same without a pause. */
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
