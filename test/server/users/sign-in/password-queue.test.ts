// The queue of password hashes: whose turn it is, and who is refused when it is full.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import type { AppError } from "../../../../src/base/errors.ts";
import { makePasswords } from "../../../../src/server/users/sign-in/hash-passwords.ts";
import { makeTurns, type Turn } from "../../../../src/server/users/sign-in/password-queue.ts";
import { makeAcme, signInTo } from "../../../support/people.ts";
import { makeTestServer, password, type TestServer } from "../../../support/server.ts";

/** A queue whose first turn is held until all have come. `order`: whose turns came, `refused`: whose did not. */
function makeQueue(maxWaiting = 64) {
  const inTurn = makeTurns(1, maxWaiting);
  const held = Promise.withResolvers<undefined>();
  const order: string[] = [];
  const refused: string[] = [];
  const all: Promise<void>[] = [inTurn({ user: "-", source: "-", isKnown: true }, () => held.promise)];
  const come = (name: string, turn: Partial<Turn> = {}) => {
    const whole = { user: name, source: name, isKnown: false, ...turn };
    const work = async () => void order.push(name);
    all.push(inTurn(whole, work).catch(() => void refused.push(name)));
  };
  const finish = async () => {
    held.resolve(undefined);
    await Promise.all(all);
  };
  return { inTurn, come, finish, order, refused };
}

const times = (count: number, act: (at: number) => void) => {
  for (let at = 0; at < count; at++) act(at);
};

describe("turns", () => {
  test.each([
    ["one user of one network", () => ({ user: "x", source: "n" })],
    ["one user from many networks", (at: number) => ({ user: "x", source: `n${at}` })],
    ["many users from one network", (at: number) => ({ user: `x${at}`, source: "n" })],
    ["many users of one domain", (at: number) => ({ user: `x${at}`, source: `n${at}`, domain: "a.example" })],
  ])("%s with 40 attempts delay another user and network by one or two", async (_, turnOf) => {
    const { come, finish, order } = makeQueue();
    times(40, (at) => come("x", turnOf(at)));
    come("y", { domain: "b.example" });
    await finish();
    expect(order.indexOf("y")).toBeLessThanOrEqual(2);
    expect(order.length).toBe(41);
  });

  test("another user of the same network is delayed by one or two", async () => {
    const { come, finish, order } = makeQueue();
    times(40, () => come("x", { source: "office" }));
    come("y", { source: "office" });
    await finish();
    expect(order.indexOf("y")).toBeLessThanOrEqual(2);
  });

  test("two with many attempts share the turns, and their own order is kept", async () => {
    const { come, finish, order } = makeQueue();
    times(10, (at) => come(`x${at}`, { user: "x", source: "x" }));
    times(10, (at) => come(`y${at}`, { user: "y", source: "y" }));
    await finish();
    const firstTen = order.slice(0, 10).map((each) => each[0]);
    expect([4, 5, 6]).toContain(firstTen.filter((each) => each === "x").length);
    expect(order.filter((each) => each.startsWith("x"))).toEqual(
      Array.from({ length: 10 }, (_, at) => `x${at}`),
    );
  });

  test("invented users from one network do not overtake a user who was served before", async () => {
    const { come, finish, order } = makeQueue();
    come("y1", { user: "y", source: "y" });
    times(30, (at) => come(`new${at}`, { source: "n" }));
    come("y2", { user: "y", source: "y" });
    await finish();
    expect(order.indexOf("y2")).toBeLessThanOrEqual(3);
  });

  test("known sources get every second turn in a flood from new networks", async () => {
    const { come, finish, order } = makeQueue();
    times(64, (at) => come(`new${at}`));
    times(4, (at) => come(`known${at}`, { isKnown: true }));
    await finish();
    expect(order.slice(0, 8).filter((each) => each.startsWith("known")).length).toBe(4);
    expect(order.length).toBe(68);
  });

  test("a failure gives the turn to the next", async () => {
    const inTurn = makeTurns(1, 4);
    const turn = { user: "x", source: "x", isKnown: false };
    const failed = inTurn(turn, () => Promise.reject(new Error("no")));
    const next = inTurn(turn, async () => "done");
    expect(await failed.catch(String)).toContain("no");
    expect(await next).toBe("done");
  });
});

describe("a full queue", () => {
  test("refuses the newest of the user or network that fills it, with Retry-After", async () => {
    const { inTurn, come, finish, order, refused } = makeQueue(8);
    times(8, (at) => come(`x${at}`, { user: "x", source: `n${at}` }));
    come("y");
    come("z");
    const more = inTurn({ user: "x", source: "n9", isKnown: false }, async () => undefined);
    expect(await more.catch((error: unknown) => error)).toMatchObject({
      code: "throttled",
      details: { retryAfter: 2 },
    });
    await finish();
    expect(refused).toEqual(["x7", "x6"]);
    expect(order.toSorted()).toEqual(["x0", "x1", "x2", "x3", "x4", "x5", "y", "z"]);
  });

  test("refuses the newest of the domain that fills it", async () => {
    const { come, finish, refused } = makeQueue(8);
    times(8, (at) => come(`x${at}`, { domain: "a.example" }));
    come("y", { domain: "b.example" });
    await finish();
    expect(refused).toEqual(["x7"]);
  });

  test("tells those that it refuses different times", async () => {
    const { inTurn, come, finish } = makeQueue(8);
    times(8, (at) => come(`x${at}`));
    const turn = (at: number) => ({ user: `more${at}`, source: "n", isKnown: false });
    const waits = Array.from({ length: 100 }, (_, at) =>
      inTurn(turn(at), async () => undefined).catch((error: AppError) => error.details.retryAfter),
    );
    const told = await Promise.all(waits);
    expect([told[0], told[20], told[99]]).toEqual([2, 3, 8]);
    await finish();
  });

  test("of strangers has places for known sources", async () => {
    const { come, finish, order, refused } = makeQueue(8);
    times(9, (at) => come(`new${at}`));
    times(8, (at) => come(`known${at}`, { isKnown: true }));
    await finish();
    expect(refused).toEqual(["new8"]);
    expect(order.length).toBe(16);
  });

  test("does not refuse unknown addresses for ever", async () => {
    const passwords = makePasswords();
    const turn = { user: "x", source: "x", isKnown: false };
    const watch = { turn, before: () => undefined, after: () => undefined };
    const quick = await Bun.password.hash(password, { algorithm: "argon2id", memoryCost: 8, timeCost: 1 });
    const crowd = Array.from({ length: 70 }, () =>
      passwords.verify(password, quick, watch).catch(() => true),
    );
    const early = passwords.verify(password, undefined, watch).catch(() => undefined);
    await Promise.all([...crowd, early]);
    expect(await passwords.verify(password, undefined, watch)).toBe(false);
  });
});

describe("80 parallel sign-ins of one member", () => {
  let server: TestServer;
  beforeEach(async () => {
    server = await makeTestServer();
    await makeAcme(server);
    await server.person("other@example.org");
  });
  afterEach(() => server[Symbol.asyncDispose]());

  /** Notes the order in which passwords are asked to be checked (`ask user 1`) and are checked (`user 1`). */
  const watchHashes = () => {
    const order: string[] = [];
    const { services } = server.app;
    const { hash, verify } = services.passwords;
    services.passwords = {
      hash,
      verify(given, known, watch) {
        order.push(`ask ${watch.turn.user}`);
        const after = (matches: boolean) => {
          order.push(watch.turn.user);
          watch.after(matches);
        };
        return verify(given, known, { ...watch, after });
      },
    };
    return order;
  };

  test.each(["192.0.2.1", "192.0.2.2"])("delay another member's from %s by a few hashes", async (address) => {
    const order = watchHashes();
    const parallel = Array.from({ length: 80 }, () => signInTo(server, "owner@example.org"));
    while (!order.includes("user 1")) await Bun.sleep(1);
    expect((await signInTo(server, "other@example.org", password, address)).status).toBe(200);
    const waited = order.slice(order.indexOf("ask user 2"), order.indexOf("user 2"));
    expect(waited.filter((each) => each === "user 1").length).toBeLessThanOrEqual(4);
    const answers = await Promise.all(parallel);
    expect(answers.filter((each) => each.status === 200).length).toBeGreaterThanOrEqual(64);
  });
});
