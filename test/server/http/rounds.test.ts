// Requests that many people send at the same time.

import { expect, test } from "bun:test";
import { makeRounds } from "../../../src/server/http/rounds.ts";

test("each has a round of its own, in the order in which they came", async () => {
  const pauses: (() => void)[] = [];
  const next = makeRounds(() => new Promise<void>((resolve) => void pauses.push(resolve)));
  const passed: number[] = [];
  const all = [0, 1, 2].map((at) => next().then(() => passed.push(at)));
  for (const expected of [[0], [0, 1], [0, 1, 2]]) {
    await Promise.resolve();
    expect(pauses.length).toBe(expected.length);
    pauses.at(-1)?.();
    await all[expected.length - 1];
    expect(passed).toEqual(expected);
  }
});
