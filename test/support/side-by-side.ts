// Runs jobs side by side: a bounded number at a time, in the given order, and after them those that need the machine
// to themselves, one at a time. Imports nothing that `bun install` brings.

export type Job = {
  /** Nothing else runs while it does. */
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
