// The queue of heavy work: whose turn it is, who is refused, and that other requests get their chance in between.

import { describe, expect, test } from "bun:test";
import {
  inSlices,
  jsonInPieces,
  makeHeavyWork,
  type HeavyLimits,
} from "../../../src/server/http/heavy-work.ts";

/** A queue whose first piece of work is held until all have come. */
function makeQueue(limits: Partial<HeavyLimits> = {}) {
  const inTurn = makeHeavyWork(limits);
  const held = Promise.withResolvers<undefined>();
  const order: string[] = [];
  const refused: unknown[] = [];
  const all: Promise<unknown>[] = [inTurn({ owner: 0, caller: "-" }, () => held.promise)];
  const come = (orgId: number, caller: string, work = () => Promise.resolve()) => {
    const done = async () => {
      order.push(`${orgId}${caller}`);
      await work();
    };
    all.push(inTurn({ owner: orgId, caller }, done).catch((error: unknown) => void refused.push(error)));
  };
  const finish = async () => {
    held.resolve(undefined);
    await Promise.all(all);
  };
  return { inTurn, come, finish, order, refused };
}

const times = (count: number, act: () => void) => {
  for (let at = 0; at < count; at++) act();
};

describe("turns", () => {
  test("organizations alternate, whatever one of them asks for", async () => {
    const { come, finish, order } = makeQueue();
    for (const caller of ["a", "b", "c"]) times(8, () => come(1, caller));
    come(2, "x");
    come(2, "x");
    await finish();
    expect(order.slice(0, 4)).toEqual(["1a", "2x", "1b", "2x"]);
    expect(order).toHaveLength(26);
  });

  test("credentials of one organization alternate", async () => {
    const { come, finish, order } = makeQueue();
    times(4, () => come(1, "a"));
    times(2, () => come(1, "b"));
    await finish();
    expect(order).toEqual(["1a", "1b", "1a", "1b", "1a", "1a"]);
  });

  test("one piece of work runs at a time, also if it fails", async () => {
    const { come, finish, order, refused } = makeQueue();
    let running = 0;
    let most = 0;
    const work = async () => {
      most = Math.max(most, ++running);
      await Bun.sleep(0);
      running--;
      throw new Error("failed");
    };
    times(5, () => come(1, "a", work));
    await finish();
    expect([most, order.length, refused.length]).toEqual([1, 5, 5]);
  });

  test("what a credential asks for beyond its place in the queue is refused, and others are not", async () => {
    const { come, finish, order, refused } = makeQueue({ perCaller: 3 });
    times(200, () => come(1, "a"));
    come(1, "b");
    come(2, "a");
    await finish();
    expect(order.toSorted()).toEqual(["1a", "1a", "1a", "1b", "2a"]);
    expect(refused).toHaveLength(197);
    expect(refused[0]).toMatchObject({ code: "throttled", details: { retryAfter: 2 } });
  });

  test("an organization with many credentials is refused at its own limit", async () => {
    const { come, finish, order, refused } = makeQueue({ perOwner: 5 });
    for (let at = 0; at < 10; at++) come(1, `${at}`);
    come(2, "x");
    await finish();
    expect([order.length, refused.length, order.includes("2x")]).toEqual([6, 5, true]);
  });

  test("a queue that was empty takes work again, and its limits start anew", async () => {
    const inTurn = makeHeavyWork({ perCaller: 1 });
    for (let at = 0; at < 5; at++) expect(await inTurn({ owner: 1, caller: "a" }, () => at)).toBe(at);
  });
});

describe("pauses", () => {
  test("other requests get their chance after each piece, also if each came to an empty queue", async () => {
    let pauses = 0;
    const inTurn = makeHeavyWork({ sliceMs: 0, pause: () => Promise.resolve(pauses++) });
    for (let at = 1; at <= 3; at++) {
      await inTurn({ owner: 1, caller: "a" }, () => undefined);
      await Promise.resolve();
      expect(pauses).toBe(at);
    }
  });

  test("long work pauses between its slices and keeps its result", async () => {
    let pauses = 0;
    function* work() {
      for (let at = 0; at < 4; at++) yield;
      return "result";
    }
    expect(await inSlices(work(), 0, () => Promise.resolve(pauses++))).toBe("result");
    expect(pauses).toBe(4);
  });

  test("JSON is made of small pieces, and is the same text", () => {
    const list = Array.from({ length: 100 }, (_, id) => ({
      id,
      text: `"${id}`,
      left: undefined,
      none: null,
    }));
    const value = {
      list,
      nested: { deep: { list: [[1], []] } },
      left: undefined,
      empty: [],
      no: null,
      nan: [NaN],
    };
    for (const depth of [0, 1, 2, 3, 9]) {
      const work = jsonInPieces(value, depth);
      let pieces = 0;
      let step = work.next();
      for (; step.done !== true; step = work.next()) pieces++;
      expect(step.value).toBe(JSON.stringify(value));
      if (depth > 1) expect(pieces).toBeGreaterThanOrEqual(list.length);
    }
  });
});
