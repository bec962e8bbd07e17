// Runs jobs concurrently, a bounded number at a time in the given order, then the exclusive ones one by one. Imports no
// package that `bun install` installs.

export type Job = {
  /** No other job runs at the same time. */
  alone?: boolean;
  run(): Promise<unknown>;
};

export async function runSideBySide(jobs: readonly Job[], width: number): Promise<void> {
  const shared = jobs.filter((job) => job.alone !== true);
  await Promise.all(Array.from({ length: width }, () => runInTurn(shared)));
  await runInTurn(jobs.filter((job) => job.alone === true));
}

/** Takes jobs from the front until none is left. */
async function runInTurn(jobs: Job[]): Promise<void> {
  for (let job = jobs.shift(); job !== undefined; job = jobs.shift()) await job.run();
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
