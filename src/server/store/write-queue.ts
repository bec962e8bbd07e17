// Collects writes while a transaction runs; they share the next one, and its one fsync. Both databases use it, each
// with its own way to commit a batch.

import { AppError } from "../../errors.ts";
import type { Database, Transaction } from "./database.ts";
import type { Notice } from "./notices.ts";

/** One write that waits. `done` and `failed` settle its promise after the commit. */
export type Work = { run(tx: Transaction): Promise<unknown>; done(): void; failed(error: unknown): void };

/** What a commit brought: the promises to settle and the notices to deliver, in this order. */
export type Committed = { settle: readonly (() => void)[]; notices: readonly Notice[] };

export type WriteQueue = Pick<Database, "write"> & {
  /** Commits what waits; later writes are refused. */
  close(): Promise<void>;
};

/** `commit` runs a batch of at most `maxBatch` works in one transaction. If it throws, all of them fail. */
export function makeWriteQueue(
  commit: (batch: readonly Work[]) => Promise<Committed>,
  tell: (notices: readonly Notice[]) => void,
  maxBatch = Infinity,
): WriteQueue {
  const waiting: Work[] = [];
  let running: Promise<void> | undefined;
  let isClosed = false;
  const drain = async () => {
    while (waiting.length > 0) {
      // A turn of the event loop: what it brings shares the transaction.
      await new Promise(setImmediate);
      const batch = waiting.splice(0, maxBatch);
      try {
        const { settle, notices } = await commit(batch);
        for (const each of settle) each();
        tell(notices);
      } catch (error) {
        for (const work of batch) work.failed(error);
      }
    }
    running = undefined;
  };
  return {
    write: <T>(run: (tx: Transaction) => Promise<T>): Promise<T> =>
      new Promise<T>((resolve, reject) => {
        if (isClosed) return reject(new AppError("storage_unavailable", "The database is closed"));
        let result: Promise<T>;
        waiting.push({ run: (tx) => (result = run(tx)), done: () => resolve(result), failed: reject });
        running ??= drain();
      }),
    async close() {
      isClosed = true;
      await running;
    },
  };
}
