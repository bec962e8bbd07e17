// A loop that runs beside requests.

import { messageOf } from "../base/errors.ts";
import type { Services } from "./services.ts";
import { LeaseLost, type Lease } from "./store/leases.ts";

export type Loop = { start(): void; stop(): Promise<void> };
/** The work of one turn. `closing`: the server stops. */
export type Turn = (closing: AbortSignal) => Promise<void>;

/** A loop that fails in every turn logs the same reason again after this time. */
const warnEveryMs = 600_000;

/**
 * Runs a turn every `everyMs` while this replica has the lease, the first after that time or `isAtOnce`. Logs failures; the next
 * turn retries.
 */
export function makeLoop(
  name: string,
  everyMs: number,
  turn: Turn,
  { system, log, lease }: Pick<Services, "system" | "log"> & { lease: Pick<Lease, "take"> },
  { isAtOnce = false } = {},
): Loop {
  const closing = new AbortController();
  let running: Promise<void> | undefined;
  const warnedAt = new Map<string, number>();
  const warn = (reason: string) => {
    const [now, last = Number.NEGATIVE_INFINITY] = [system.monotonic(), warnedAt.get(reason)];
    if (now - last < warnEveryMs) return;
    // Reasons may name what differs each time.
    if (warnedAt.size >= 20) warnedAt.clear();
    warnedAt.set(reason, now);
    log.warn(`${name} failed; retrying`, { reason });
  };
  const run = async () => {
    for (let isFirst = true; ; isFirst = false) {
      // `stop` aborts the sleep, which then rejects.
      if (!isFirst || !isAtOnce) await system.sleep(everyMs, closing.signal).catch(() => undefined);
      if (closing.signal.aborted) return;
      if (!lease.take()) continue;
      await turn(closing.signal).then(
        () => warnedAt.clear(),
        (error: unknown) => {
          if (error instanceof LeaseLost) log.info(error.message);
          else warn(messageOf(error));
        },
      );
    }
  };
  return {
    start: () => void (running = run()),
    async stop() {
      closing.abort();
      await running;
    },
  };
}
