// The queue for work that many want at once. Owners (organizations, providers) take turns, and within an owner's line its
// callers do (credentials, networks): one with many requests delays another by one piece of work each time. Knows no route.

import type { AppError } from "../../errors.ts";

/** On whose behalf work is done. `owner`: an id; `caller`: one credential or network. */
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
  /** After each work, which took so many ms: nothing is started before the pause is over. */
  pauseAfter?(ms: number): Promise<unknown> | undefined;
};

type Line = { waiting: number; running: number; callers: Map<string, (() => void)[]> };

export function makeFairQueue(limits: QueueLimits): InTurn {
  const { atOnce = Infinity, ofOwner = Infinity, perCaller, perOwner, refusal, pauseAfter } = limits;
  /** Maps keep the order of insertion: who had a turn goes to the end. */
  const lines = new Map<number, Line>();
  let running = 0;
  const startMore = () => {
    while (running < atOnce) {
      const start = takeNext(lines, ofOwner);
      if (start === undefined) return;
      running++;
      start();
    }
  };
  const wait = ({ owner, caller }: Turn, start: () => void) => {
    const line = lines.get(owner) ?? { waiting: 0, running: 0, callers: new Map<string, (() => void)[]>() };
    const own = line.callers.get(caller) ?? [];
    if (own.length >= perCaller || line.waiting >= perOwner) throw refusal();
    own.push(start);
    line.waiting++;
    line.callers.set(caller, own);
    lines.set(owner, line);
  };
  const leave = async (owner: number, ms: number) => {
    const pause = pauseAfter?.(ms);
    if (pause !== undefined) await pause;
    running--;
    const line = lines.get(owner);
    if (line !== undefined && --line.running === 0 && line.waiting === 0) lines.delete(owner);
    startMore();
  };
  return async (turn, work) => {
    await new Promise<void>((start) => {
      wait(turn, start);
      startMore();
    });
    const begun = performance.now();
    try {
      return await work();
    } finally {
      void leave(turn.owner, performance.now() - begun);
    }
  };
}

function takeNext(lines: Map<number, Line>, ofOwner: number): (() => void) | undefined {
  for (const [owner, line] of lines) {
    const [next] = line.running < ofOwner ? line.callers : [];
    if (next === undefined) continue;
    const [caller, own] = next;
    const start = own.shift();
    line.callers.delete(caller);
    if (own.length > 0) line.callers.set(caller, own);
    line.waiting--;
    line.running++;
    lines.delete(owner);
    lines.set(owner, line);
    return start;
  }
  return undefined;
}
