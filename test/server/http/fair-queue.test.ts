// Whose turn it is, how many run at once, and who is refused. heavy-work.test.ts has more about turns.

import { expect, test } from "bun:test";
import { AppError } from "../../../src/errors.ts";
import { makeFairQueue, type QueueLimits } from "../../../src/server/http/fair-queue.ts";

const limits: QueueLimits = {
  perCaller: 3,
  perOwner: 6,
  refusal: () => new AppError("throttled", "Too many."),
};

/** Works that last until they are released. */
function start(more: Partial<QueueLimits>) {
  const inTurn = makeFairQueue({ ...limits, ...more });
  const begun: string[] = [];
  const held = new Map<string, PromiseWithResolvers<undefined>>();
  const come = (name: string, owner: number, caller = name) => {
    const one = Promise.withResolvers<undefined>();
    held.set(name, one);
    return inTurn({ owner, caller }, () => {
      begun.push(name);
      return one.promise;
    }).catch((error: unknown) => (error instanceof Error ? error.message : error));
  };
  return { come, begun, end: (name: string) => held.get(name)?.resolve(undefined), held };
}

test("a few of each owner run at once, the others in turn; another owner has a line of its own", async () => {
  const { come, begun, end, held } = start({ ofOwner: 2 });
  const all = ["a", "b", "c", "d"].map((name) => come(name, 1));
  await Promise.resolve();
  expect(begun).toEqual(["a", "b"]);
  const other = come("z", 2);
  end("z");
  await other;
  expect(begun).toEqual(["a", "b", "z"]);
  held.get("b")?.reject(new Error("it does not answer"));
  expect(await all[1]).toBe("it does not answer");
  end("a");
  await all[0];
  await Promise.resolve();
  expect(begun).toEqual(["a", "b", "z", "c", "d"]);
  for (const name of ["c", "d"]) end(name);
  await Promise.all(all);
});

test("owners take turns, and callers within one", async () => {
  const { come, begun, end } = start({ atOnce: 1 });
  const all = [
    come("first", 9),
    ...["a1", "a2", "a3"].map((name) => come(name, 1, "a")),
    come("b1", 1, "b"),
    come("z", 2),
  ];
  for (const name of ["first", "a1", "z", "b1", "a2", "a3"]) end(name);
  await Promise.all(all);
  expect(begun).toEqual(["first", "a1", "z", "b1", "a2", "a3"]);
});

test("too many of one caller, or of one owner, are refused; their ends make room", async () => {
  const { come, begun, end } = start({ atOnce: 1 });
  const all = [come("first", 1), ...["a1", "a2", "a3"].map((name) => come(name, 1, "a"))];
  expect(await come("a4", 1, "a")).toBe("Too many.");
  all.push(...["b", "c", "d"].map((name) => come(name, 1)));
  expect(await come("e", 1)).toBe("Too many.");
  all.push(come("other", 2));
  for (const name of ["first", "a1", "a2", "a3", "b", "c", "d", "other"]) end(name);
  await Promise.all(all);
  expect(begun.length).toBe(8);
  const again = come("f", 1);
  end("f");
  expect(await again).toBeUndefined();
});

test("nothing starts before the pause after a work is over", async () => {
  const pause = Promise.withResolvers<undefined>();
  const { come, begun, end } = start({ atOnce: 1, pauseAfter: () => pause.promise });
  const all = [come("a", 1), come("b", 1)];
  end("a");
  end("b");
  await all[0];
  await Promise.resolve();
  expect(begun).toEqual(["a"]);
  pause.resolve(undefined);
  await all[1];
  expect(begun).toEqual(["a", "b"]);
});
