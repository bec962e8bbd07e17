// A simulated clock: sleepers wake in order, as fast as the work between them allows.

export type Clock = {
  /** Milliseconds since the test began. */
  now(): number;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Advances the clock by this time. */
  pass(ms: number): Promise<void>;
};

type Sleeper = { ms: number; at: number; wake(): void };

/** Real processes need real time: polling sleeps give it to them. */
const shortMs = 100;

export function makeClock(onMove: (ms: number) => void = () => {}): Clock {
  const sleepers = new Set<Sleeper>();
  let now = 0;
  const moveTo = (ms: number) => {
    now = ms;
    onMove(ms);
  };
  const earliest = () =>
    [...sleepers].reduce<Sleeper | undefined>(
      (first, each) => (first === undefined || each.at < first.at ? each : first),
      undefined,
    );
  return {
    now: () => now,
    sleep(ms, signal) {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const abort = () => {
        sleepers.delete(sleeper);
        reject(signal?.reason);
      };
      const sleeper = {
        ms,
        at: now + ms,
        wake() {
          sleepers.delete(sleeper);
          signal?.removeEventListener("abort", abort);
          resolve();
        },
      };
      if (signal?.aborted === true) reject(signal.reason);
      else sleepers.add(sleeper);
      signal?.addEventListener("abort", abort, { once: true });
      return promise;
    },
    async pass(ms) {
      const end = now + ms;
      for (;;) {
        // First let the woken code and its system calls run.
        for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
        const next = earliest();
        if (next === undefined || next.at > end) return moveTo(end);
        if (next.ms < shortMs) await Bun.sleep(1);
        moveTo(Math.max(now, next.at));
        next.wake();
      }
    },
  };
}
