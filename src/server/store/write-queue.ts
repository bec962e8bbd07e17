// Collects writes while a transaction runs; those of one concern share the next one, and its one fsync. Both databases use
// it, each with its own way to commit a batch.

import { AppError } from "../../base/errors.ts";
import type { Concern, Database, Transaction } from "./database.ts";
import type { Notice } from "./notices.ts";

/** A waiting write. `done` and `failed` settle its promise after the commit. */
export type Work = {
  concerns: Transaction["concerns"];
  run(tx: Transaction): Promise<unknown>;
  done(): void;
  failed(error: unknown): void;
};

/** The result of a commit. `settlers` settle the promises of its works; then the notices are delivered. */
export type Committed = { settlers: readonly (() => void)[]; notices: readonly Notice[] };

export type WriteQueue = Pick<Database, "write" | "writeFor"> & {
  /** Commits what waits; later writes are refused. */
  close(): Promise<void>;
};

export type QueueLimits = {
  /** Works of one transaction. */
  maxBatch: number;
  /** Transactions that run side by side, each of another concern. 1: all works share one line. */
  width: number;
  /** How long a transaction waits while each turn of the event loop brings further works, ms. 0: works gather while others run. */
  gatherMs: number;
};

/** `commit` runs a batch of works of one concern in one transaction. If it throws, all of them fail. */
export function makeWriteQueue(
  commit: (batch: readonly Work[]) => Promise<Committed>,
  tell: (notices: readonly Notice[]) => void,
  { maxBatch, width, gatherMs }: QueueLimits,
): WriteQueue {
  /** The lines with waiting writes, in the order of their turns. A line whose transaction runs is in `busy`. */
  const lines = new Map<string, Work[]>();
  const busy = new Set<string>();
  const running = new Set<Promise<void>>();
  let isClosed = false;

  const commitNext = async (line: string) => {
    // Wait for one turn of the event loop: its writes share the transaction. After a change all nodes write at once, but each
    // turn begins only one of their requests: wait as long as each turn brings more.
    const waiting = lines.get(line) ?? [];
    const end = performance.now() + gatherMs;
    for (let lastLength = 0; waiting.length > lastLength && waiting.length < maxBatch;) {
      lastLength = waiting.length;
      await new Promise(setImmediate);
      if (performance.now() >= end) break;
    }
    const batch = waiting.splice(0, maxBatch);
    // Moves the line to the end.
    lines.delete(line);
    if (waiting.length > 0) lines.set(line, waiting);
    try {
      const { settlers, notices } = await commit(batch);
      for (const each of settlers) each();
      tell(notices);
    } catch (error) {
      for (const work of batch) work.failed(error);
    }
  };
  const startMore = () => {
    for (const line of lines.keys()) {
      if (busy.size >= width) return;
      if (busy.has(line)) continue;
      busy.add(line);
      const run = commitNext(line).finally(() => {
        busy.delete(line);
        running.delete(run);
        startMore();
      });
      running.add(run);
    }
  };
  const enqueue = <T>(concerns: Work["concerns"], run: (tx: Transaction) => Promise<T>): Promise<T> =>
    new Promise<T>((resolve, reject) => {
      if (isClosed) return reject(new AppError("storage_unavailable", "The database is closed"));
      let result: Promise<T>;
      const work = {
        concerns,
        run: (tx: Transaction) => (result = run(tx)),
        done: () => resolve(result),
        failed: reject,
      };
      const line = width === 1 ? "" : lineOf(concerns);
      lines.getOrInsertComputed(line, () => []).push(work);
      startMore();
    });
  return {
    write: (run) => enqueue("everything", run),
    writeFor: enqueue,
    async close() {
      isClosed = true;
      while (running.size > 0) await Promise.all(running);
    },
  };
}

/**
 * The line in which writes of this concern wait for each other. "everything" is one more line: locks of the database part it from the
 * others (postgres.ts).
 */
function lineOf(concerns: Concern | "everything"): string {
  if (typeof concerns === "string") return concerns;
  return "org" in concerns ? `org ${concerns.org}` : `user ${concerns.user}`;
}
