// Sign-ins by one provider wait in line: if all asked it at once, most would not be answered before their time is over.

import { AppError } from "../../errors.ts";

/** Runs the work when it is its turn at the provider. Throws throttled if the line is full. */
export type InLine = <T>(provider: number, work: () => Promise<T>) => Promise<T>;

type Line = { running: number; waiting: (() => void)[] };

const retryAfter = 10;

export function makeInLine({ atOnce = 16, maxWaiting = 1000 } = {}): InLine {
  const lines = new Map<number, Line>();
  return async (provider, work) => {
    const line = lines.get(provider) ?? { running: 0, waiting: [] };
    lines.set(provider, line);
    if (line.running < atOnce) line.running++;
    else {
      if (line.waiting.length >= maxWaiting) throw full();
      await new Promise<void>((start) => void line.waiting.push(start));
    }
    try {
      return await work();
    } finally {
      const next = line.waiting.shift();
      // The place goes to the next one.
      if (next !== undefined) next();
      else if (--line.running === 0) lines.delete(provider);
    }
  };
}

function full(): AppError {
  const message = `Too many users are signing in by this provider at the moment. Try again in ${retryAfter} seconds.`;
  return new AppError("throttled", message, { retryAfter });
}
