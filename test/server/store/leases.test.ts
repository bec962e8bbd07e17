// Which replica runs a loop, and that a former holder of a lease cannot write any more.

import { afterEach, expect, test } from "bun:test";
import type { Database } from "../../../src/server/store/database.ts";
import { LeaseLost, makeLeases } from "../../../src/server/store/leases.ts";
import { openPostgres } from "../../../src/server/store/postgres/postgres.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import { realSystem } from "../../../src/base/system.ts";
import { describePostgres, useMigrated } from "../../support/postgres.ts";
import { until } from "../../support/until.ts";
import { failureOf, keys, put } from "./cases.ts";

const times = { leaseMs: 1500, renewEveryMs: 150 };

describePostgres("leases", () => {
  const createDatabase = useMigrated();
  const ends: (() => Promise<void>)[] = [];

  afterEach(async () => {
    for (const end of ends.splice(0).toReversed()) await end();
  });

  const openTwo = async () => {
    const url = await createDatabase();
    const open = async () => {
      const database = await openPostgres({ url, now: Date.now });
      ends.push(() => database.close());
      return database;
    };
    return [await open(), await open()] as const;
  };
  /** A replica that competes for the lease `loop`. Suspended, it renews no more, as a process after SIGSTOP. */
  const replica = (db: Database, holder: string) => {
    const { sleep } = realSystem();
    const awake = { now: true };
    const leases = makeLeases({
      db,
      holder,
      times,
      log: { warn: () => undefined },
      system: {
        async sleep(ms, signal) {
          await sleep(ms, signal);
          const isStopped = () => signal?.aborted === true;
          while (!awake.now && !isStopped()) await Bun.sleep(5);
        },
      },
    });
    const lease = leases.of("loop");
    leases.start();
    ends.push(() => leases.stop());
    return { leases, lease, suspend: () => (awake.now = false), resume: () => (awake.now = true) };
  };

  test("one replica has the lease, and keeps it", async () => {
    const [a, b] = await openTwo();
    const first = replica(a, "first");
    await until(first.lease.take);
    const second = replica(b, "second");
    const end = performance.now() + 2 * times.leaseMs;
    while (performance.now() < end) {
      expect([first.lease.take(), second.lease.take()]).toEqual([true, false]);
      await Bun.sleep(20);
    }
  });

  test("a stop passes the lease on at once", async () => {
    const [a, b] = await openTwo();
    const first = replica(a, "first");
    await until(first.lease.take);
    const second = replica(b, "second");
    await first.leases.stop();
    expect(first.lease.take()).toBe(false);
    await until(second.lease.take);
    expect(await b.get("SELECT holder, fence FROM leases")).toEqual({ holder: "second", fence: 2 });
  });

  test("a suspended holder loses the lease, and its writes are refused when it continues", async () => {
    const [a, b] = await openTwo();
    const first = replica(a, "first");
    await until(first.lease.take);
    const second = replica(b, "second");
    first.suspend();
    // It continues in the middle of a turn, which it began as the holder.
    await until(second.lease.take);
    for (const write of [
      () => put(first.lease.db, "everything", ""),
      () =>
        first.lease.db.writeFor({ org: 1 }, (tx) =>
          tx.run("INSERT INTO meta (key, value) VALUES ('org', '')"),
        ),
    ]) {
      expect(await failureOf(write())).toBeInstanceOf(LeaseLost);
    }
    expect(first.lease.take()).toBe(false);
    await put(second.lease.db, "successor", "");
    first.resume();
    await Bun.sleep(3 * times.renewEveryMs);
    expect([first.lease.take(), second.lease.take()]).toEqual([false, true]);
    expect(await keys(b)).toEqual(["successor"]);
  });

  test("a takeover waits until a write of the former holder has ended", async () => {
    const [a, b] = await openTwo();
    const first = replica(a, "first");
    await until(first.lease.take);
    const second = replica(b, "second");
    const order: string[] = [];
    const write = first.lease.db.writeFor("rows", async (tx) => {
      await tx.run("INSERT INTO meta (key, value) VALUES ('written', '')");
      first.suspend();
      await Bun.sleep(2 * times.leaseMs);
      order.push(`taken over: ${second.lease.take()}`);
    });
    await write;
    await until(second.lease.take);
    expect(order).toEqual(["taken over: false"]);
    expect(await keys(b)).toEqual(["written"]);
  });

  test("a long write of the holder does not delay its renewals", async () => {
    const [a, b] = await openTwo();
    const first = replica(a, "first");
    await until(first.lease.take);
    const second = replica(b, "second");
    const seen: boolean[] = [];
    await first.lease.db.writeFor({ org: 1 }, async () => {
      await Bun.sleep(2 * times.leaseMs);
      seen.push(first.lease.take(), second.lease.take());
    });
    expect(seen).toEqual([true, false]);
  });

  test("a turn of an earlier term cannot write in a later term of the same replica", async () => {
    const [a, b] = await openTwo();
    const first = replica(a, "first");
    await until(first.lease.take);
    const second = replica(b, "second");
    first.suspend();
    await until(second.lease.take);
    first.resume();
    await second.leases.stop();
    await until(async () => (await b.get("SELECT holder FROM leases"))?.["holder"] === "first");
    await Bun.sleep(2 * times.renewEveryMs);
    expect(await failureOf(put(first.lease.db, "late", ""))).toBeInstanceOf(LeaseLost);
    expect(first.lease.take()).toBe(true);
    await put(first.lease.db, "new turn", "");
  });
});

test("with SQLite a lease is always held and costs nothing", async () => {
  const db = await openSqlite({ path: ":memory:", now: Date.now, role: "server" });
  const leases = makeLeases({ db, holder: "only", log: { warn: () => undefined }, system: realSystem() });
  const lease = leases.of("loop");
  leases.start();
  expect([lease.take(), lease.db === db]).toEqual([true, true]);
  await leases.stop();
  await db.close();
});
