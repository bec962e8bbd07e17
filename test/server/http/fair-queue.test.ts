// Whose turn it is, how many run at once, and who is refused. heavy-work.test.ts has more about turns.

import { describe, expect, test } from "bun:test";
import { AppError } from "../../../src/base/errors.ts";
import { makeFairQueue, makeRounds, type QueueLimits } from "../../../src/server/http/fair-queue.ts";
import { makeBacklog } from "../../../src/server/http/backlog.ts";

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

describe("rounds", () => {
  function startRounds(perRound: number) {
    const ends: (() => void)[] = [];
    const begin = makeRounds(perRound, limits, (next) => void ends.push(next));
    const begun: string[] = [];
    const come = (name: string, owner: number, caller = name) => {
      const waits = begin(() => ({ owner, caller }));
      if (waits === undefined) begun.push(name);
      return waits?.then(() => void begun.push(name)).catch((error: unknown) => String(error));
    };
    /** The present round ends. */
    const next = async () => {
      for (const end of ends.splice(0)) end();
      for (let at = 0; at < 4; at++) await Promise.resolve();
    };
    return { come, next, begun, ends };
  }

  test("some begin at once; the others in later rounds, owners in turn and callers within one", async () => {
    const { come, next, begun, ends } = startRounds(2);
    for (const name of ["a1", "a2", "a3", "a4"]) void come(name, 1, "a");
    void come("b1", 1, "b");
    void come("z", 2);
    expect(begun).toEqual(["a1", "a2"]);
    await next();
    expect(begun.slice(2)).toEqual(["a3", "z"]);
    // Whoever comes now waits behind those that wait.
    void come("late", 2);
    await next();
    expect(begun.slice(4)).toEqual(["b1", "late"]);
    await next();
    expect(begun.slice(6)).toEqual(["a4"]);
    // One more may begin in this round, and two in the next.
    for (const name of ["c1", "c2"]) void come(name, 1);
    expect(begun.slice(7)).toEqual(["c1"]);
    await next();
    expect(begun.slice(8)).toEqual(["c2"]);
    await next();
    expect(ends).toBeEmpty();
  });

  test("too many of one caller, or of one owner, are refused", async () => {
    const { come, next, begun } = startRounds(1);
    void come("first", 1);
    for (const name of ["a1", "a2", "a3"]) void come(name, 1, "a");
    expect(await come("a4", 1, "a")).toContain("Too many.");
    for (const name of ["b", "c", "d"]) void come(name, 1);
    expect(await come("e", 1)).toContain("Too many.");
    void come("other", 2);
    await next();
    await next();
    expect(begun).toEqual(["first", "a1", "other"]);
  });
});

describe("a backlog", () => {
  type Entry = { name: string; size: number };
  const make = (room: number) => {
    const backlog = makeBacklog<Entry>(room, ({ size }) => size);
    const add = (owner: number, name: string, size = 1) => backlog.add(owner, { name, size });
    const next = (most: number) => backlog.next(most, () => true);
    return { backlog, add, next, names: (most: number) => next(most).map(({ name }) => name) };
  };

  test("gives the entries of owners in turn; what was not removed comes again", () => {
    const { backlog, add, next, names } = make(100);
    for (const name of ["a1", "a2", "a3"]) add(1, name);
    for (const name of ["b1", "b2"]) add(2, name);
    add(3, "c1");
    expect(names(4)).toEqual(["a1", "b1", "c1", "a2"]);
    backlog.remove(next(2));
    expect(names(9)).toEqual(["c1", "a2", "b2", "a3"]);
    backlog.remove(next(9));
    expect([backlog.count, names(9)]).toEqual([0, []]);
  });

  test("an entry that may not join the others keeps its owner's line waiting, in order", () => {
    const { backlog, add } = make(100);
    for (const name of ["x", "x", "y"]) add(1, name);
    add(2, "z");
    const names = (entries: readonly Entry[]) => entries.map(({ name }) => name);
    const other = ({ name }: Entry, others: readonly Entry[]) => !names(others).includes(name);
    const first = backlog.next(9, other);
    expect(names(first)).toEqual(["x", "z"]);
    backlog.remove(first);
    expect(names(backlog.next(9, other))).toEqual(["x", "y"]);
  });

  test("one owner has a quarter; in a full one, each that has less than its share gets that", () => {
    const { backlog, add, next } = make(20);
    const fill = (owner: number) =>
      Array.from({ length: 30 }, (_, at) => add(owner, `${at}`)).filter(Boolean).length;
    expect([1, 2, 3, 4, 5, 6].map(fill)).toEqual([5, 5, 5, 5, 4, 4]);
    expect(fill(1)).toBe(0);
    backlog.remove(next(28));
    expect(fill(1)).toBe(5);
  });
});
