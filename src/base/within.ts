// Waits that end at a limit.

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
