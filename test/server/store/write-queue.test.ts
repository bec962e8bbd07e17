// Writes that share a commit, whatever the database.

import { expect, test } from "bun:test";
import { makeWriteQueue } from "../../../src/server/store/write-queue.ts";

/** A queue, and the number of works in each of its commits. */
function makeQueue() {
  const sizes: number[] = [];
  const queue = makeWriteQueue(
    async (batch) => {
      sizes.push(batch.length);
      return { settlers: batch.map(({ done }) => done), notices: [] };
    },
    () => undefined,
    { maxBatch: 50, width: 1, gatherMs: 60_000 },
  );
  return { queue, sizes };
}

test("writes of which one comes in each turn of the event loop share a commit", async () => {
  const { queue, sizes } = makeQueue();
  const writes: Promise<unknown>[] = [];
  await new Promise<void>((resolve) => {
    const writeMore = (left: number) => {
      if (left === 0) return resolve();
      setImmediate(() => writeMore(left - 1));
      writes.push(queue.writeFor("rows", async () => undefined));
    };
    writeMore(40);
  });
  await Promise.all(writes);
  expect(sizes).toEqual([40]);
});

test("a commit takes no more than fit, and a lone write waits for no other", async () => {
  const { queue, sizes } = makeQueue();
  const write = () => queue.writeFor("rows", async () => undefined);
  await Promise.all(Array.from({ length: 120 }, write));
  await write();
  await write();
  expect(sizes).toEqual([50, 50, 20, 1, 1]);
});
