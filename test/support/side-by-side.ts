// Runs jobs concurrently, a bounded number at a time in the given order, then the exclusive ones one by one. Imports no
// package that `bun install` installs.

export type Job = {
  /** No other job runs at the same time. */
  alone?: boolean;
  run(): Promise<unknown>;
};

/** `room` resolves when one more may begin beside the others, whose number falls while it waits; it is asked before each shared one. */
export async function runSideBySide(
  jobs: readonly Job[],
  width: number,
  room: (others: () => number) => Promise<unknown> = async () => undefined,
): Promise<void> {
  const shared = jobs.filter((job) => job.alone !== true);
  let running = 0;
  let asking: Promise<unknown> = Promise.resolve();
  /** One asks at a time: what begins now is not yet seen to be busy. */
  const begin = () => (asking = asking.then(() => room(() => running)).then(() => void running++));
  const turn = async () => {
    for (;;) {
      if (shared.length === 0) return;
      await begin();
      await shared.shift()?.run();
      running--;
    }
  };
  await Promise.all(Array.from({ length: width }, turn));
  for (const job of jobs) if (job.alone === true) await job.run();
}

/** Each that failed with its first and its last outcome, which differ only if at most `most` failed: these run again, one by one. */
export async function runAgain<What, Outcome>(
  failed: readonly (readonly [What, Outcome])[],
  most: number,
  run: (what: What) => Promise<Outcome>,
): Promise<[What, Outcome, Outcome][]> {
  const outcomes: [What, Outcome, Outcome][] = [];
  for (const [what, first] of failed)
    outcomes.push([what, first, failed.length > most ? first : await run(what)]);
  return outcomes;
}
