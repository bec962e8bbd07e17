// Rejects work that takes too long. One timer for all of it, because a timer for each request costs more than reading its
// body. So the time is exact to a second.

const checkMs = 1000;

export type Deadlines = { within<T>(work: Promise<T>): Promise<T> };

/** `now`: a monotonic clock. `late`: the error of work that was not done after `maxMs`. */
export function makeDeadlines(maxMs: number, now: () => number, late: () => Error): Deadlines {
  // Oldest first.
  const open = new Set<{ since: number; reject(error: Error): void }>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const check = () => {
    timer = undefined;
    for (const each of open) {
      if (now() - each.since < maxMs) break;
      open.delete(each);
      each.reject(late());
    }
    if (open.size > 0) arm();
  };
  const arm = () => (timer ??= setTimeout(check, checkMs).unref());
  return {
    within: (work) =>
      new Promise((resolve, reject) => {
        const entry = { since: now(), reject };
        open.add(entry);
        arm();
        void work.then(resolve, reject).finally(() => open.delete(entry));
      }),
  };
}
