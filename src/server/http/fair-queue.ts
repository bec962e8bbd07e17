// The queue for work that many want at once. Owners (organizations, providers) take turns, and within an owner's line its
// callers do (credentials, networks): one with many requests delays another by one piece of work each time. Knows no
// route.

import { defer } from "../../base/defer.ts";
import type { AppError } from "../../base/errors.ts";

/** The owner and caller of a piece of work. `owner`: an id; `caller`: one credential or network. */
export type Turn = { owner: number; caller: string };

/** Runs the work in turn. Throws the queue's refusal if too much of this caller or owner waits. */
export type InTurn = <T>(turn: Turn, work: () => T | Promise<T>) => Promise<T>;

export type QueueLimits = {
  /** Works that run side by side: in all, and of one owner. */
  atOnce?: number;
  ofOwner?: number;
  /** Works that wait. */
  perCaller: number;
  perOwner: number;
  refusal(): AppError;
  /** Called after each piece of work with its duration in ms. Its place stays taken until the returned pause is over. */
  pauseAfter?(ms: number): Promise<unknown> | undefined;
};

/**
 * The waiting pieces of work, by owner and caller. Maps keep the order of insertion: after a turn, an owner and a
 * caller go to the end.
 */
type Lines = {
  /** Throws the refusal if too much of this caller or owner waits. */
  add(turn: Turn, start: () => void): void;
  /** Removes and returns the next one. An owner with as many running works as it may have is passed over. */
  next(): (() => void) | undefined;
  /** A work of this owner has ended. */
  ended(owner: number): void;
};
/** The work of one owner. `callers`: of each, the functions that start its waiting pieces of work. */
type Line = { waiting: number; running: number; callers: Map<string, (() => void)[]> };

function makeLines({ ofOwner = Infinity, perCaller, perOwner, refusal }: QueueLimits): Lines {
  const lines = new Map<number, Line>();
  return {
    add({ owner, caller }, start) {
      const line = lines.get(owner) ?? { waiting: 0, running: 0, callers: new Map<string, (() => void)[]>() };
      const starts = line.callers.get(caller) ?? [];
      if (starts.length >= perCaller || line.waiting >= perOwner) throw refusal();
      starts.push(start);
      line.waiting++;
      line.callers.set(caller, starts);
      lines.set(owner, line);
    },
    next() {
      for (const [owner, line] of lines) {
        const [firstCaller] = line.callers;
        if (firstCaller === undefined || line.running >= ofOwner) continue;
        const [caller, starts] = firstCaller;
        const start = starts.shift();
        line.callers.delete(caller);
        if (starts.length > 0) line.callers.set(caller, starts);
        line.waiting--;
        line.running++;
        lines.delete(owner);
        lines.set(owner, line);
        return start;
      }
      return undefined;
    },
    ended(owner) {
      const line = lines.get(owner);
      if (line !== undefined && --line.running === 0 && line.waiting === 0) lines.delete(owner);
    },
  };
}

export function makeFairQueue(limits: QueueLimits): InTurn {
  const { atOnce = Infinity, pauseAfter } = limits;
  const lines = makeLines(limits);
  let running = 0;
  const startMore = () => {
    while (running < atOnce) {
      const start = lines.next();
      if (start === undefined) return;
      running++;
      start();
    }
  };
  const finish = async (owner: number, ms: number) => {
    const pause = pauseAfter?.(ms);
    if (pause !== undefined) await pause;
    running--;
    lines.ended(owner);
    startMore();
  };
  return async (turn, work) => {
    await new Promise<void>((start) => {
      lines.add(turn, start);
      startMore();
    });
    const begun = performance.now();
    using _ = defer(() => finish(turn.owner, performance.now() - begun));
    return await work();
  };
}

/**
 * Undefined if the work may begin at once. `turnOf` is called only if it must wait. The promise fails with the
 * queue's refusal.
 */
export type Rounds = (turnOf: () => Turn) => Promise<void> | undefined;

/**
 * Starts this many pieces of work in each round of the event loop. Work that starts at once costs two additions: most
 * check-ins do.
 */
export function makeRounds(
  perRound: number,
  limits: Pick<QueueLimits, "perCaller" | "perOwner" | "refusal">,
  afterRound: (next: () => void) => void = setImmediate,
): Rounds {
  const lines = makeLines(limits);
  /** Remaining starts in this round. */
  let remaining = perRound;
  /** Whether the end of this round is awaited already. The first start of a round asks for it. */
  let isEndAwaited = false;
  const countStart = () => {
    remaining--;
    if (isEndAwaited) return;
    isEndAwaited = true;
    afterRound(startRound);
  };
  const startRound = () => {
    isEndAwaited = false;
    remaining = perRound;
    for (let started = 0; started < perRound; started++) {
      const start = lines.next();
      if (start === undefined) return;
      countStart();
      start();
    }
  };
  return (turnOf) => {
    if (remaining > 0) {
      countStart();
      return undefined;
    }
    return new Promise((resolve) => {
      const turn = turnOf();
      lines.add(turn, () => {
        lines.ended(turn.owner);
        resolve();
      });
    });
  };
}
