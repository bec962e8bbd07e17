// Work with an end: a limit of time, or a signal.

import { messageOf } from "./errors.ts";
import type { System } from "./system.ts";

/** The result of `work`; `late` if it takes longer than `ms`. The work itself continues. */
export async function within<T, L>(
  { sleep }: Pick<System, "sleep">,
  ms: number,
  work: Promise<T>,
  late: L,
): Promise<T | L> {
  const ended = new AbortController();
  // Resolve in both cases: the sleep rejects when it is aborted.
  const limit = sleep(ms, ended.signal).then(
    () => late,
    () => late,
  );
  try {
    return await Promise.race([work, limit]);
  } finally {
    ended.abort();
  }
}

type RepeatOptions = {
  /** ms between the end of a step and the next one. */
  everyMs: number;
  signal: AbortSignal;
  system: Pick<System, "sleep">;
  /** A step failed. Called once for the same reason, until a step succeeds. */
  failed(reason: string): void;
};

/** Takes steps until the signal aborts. After a failed step it tries again at the next one. Does not reject. */
export async function repeat(
  step: () => void | Promise<void>,
  { everyMs, signal, system, failed }: RepeatOptions,
): Promise<void> {
  let lastReason: string | undefined;
  while (!signal.aborted) {
    try {
      await step();
      lastReason = undefined;
    } catch (error) {
      const reason = messageOf(error);
      if (reason !== lastReason) failed(reason);
      lastReason = reason;
    }
    // The signal rejects the sleep.
    await system.sleep(everyMs, signal).catch(() => undefined);
  }
}

/** Works after `firstMs`, and then every `everyMs`, until the signal. `work` must not throw. */
export async function atIntervals(
  work: () => void,
  { firstMs, everyMs, signal, system }: { firstMs: number } & Omit<RepeatOptions, "failed">,
): Promise<void> {
  for (let waitMs = firstMs; !signal.aborted; waitMs = everyMs) {
    await system.sleep(waitMs, signal).catch(() => undefined);
    if (!signal.aborted) work();
  }
}
