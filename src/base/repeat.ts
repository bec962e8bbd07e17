// Work that is done again and again until a signal.

import { messageOf } from "./errors.ts";
import type { System } from "./system.ts";

export type RepeatOptions = {
  /** ms between the end of a step and the next one. */
  everyMs: number;
  signal: AbortSignal;
  system: Pick<System, "sleep">;
  /** A step failed. Called once for the same reason, until a step succeeds. */
  failed(reason: string): void;
};

/** Takes steps until the signal; the next one is another try. Does not reject. */
export async function repeat(
  step: () => void | Promise<void>,
  { everyMs, signal, system, failed }: RepeatOptions,
): Promise<void> {
  let trouble: string | undefined;
  while (!signal.aborted) {
    try {
      await step();
      trouble = undefined;
    } catch (error) {
      const reason = messageOf(error);
      if (reason !== trouble) failed(reason);
      trouble = reason;
    }
    // The signal rejects the sleep.
    await system.sleep(everyMs, signal).catch(() => undefined);
  }
}
