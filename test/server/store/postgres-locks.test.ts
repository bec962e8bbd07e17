// Which writes of several replicas run side by side on PostgreSQL, and that every notice is read.

import { afterEach, expect, test } from "bun:test";
import { SQL } from "bun";
import {
  requireLockOf,
  type Concern,
  type Database,
  type Transaction,
} from "../../../src/server/store/database.ts";
import { makeNoticeReader } from "../../../src/server/store/postgres/notices.ts";
import { openPostgres } from "../../../src/server/store/postgres/postgres.ts";
import { describePostgres, useMigrated } from "../../support/postgres.ts";
import { until } from "../../support/until.ts";
import { failureOf, put } from "./cases.ts";

const waiting = "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";

describePostgres("the locks of PostgreSQL", () => {
  const create = useMigrated();
  const ends: (() => Promise<void>)[] = [];

  afterEach(async () => {
    for (const end of ends.splice(0).toReversed()) await end();
  });

  const open = async (url: string) => {
    const database = await openPostgres({ url, now: Date.now });
    ends.push(() => database.close());
    return database;
  };
  const pair = async () => {
    const url = await create();
    return [await open(url), await open(url), url] as const;
  };
  /** A session as a server of release 0.1.0 has it. */
  const former = async (url: string) => {
    const sql = new SQL(url, { max: 1, connection: { application_name: "overlay-agent server" } });
    ends.push(() => sql.close());
    await sql.unsafe("SELECT 1");
    return sql;
  };

  /** Runs both writes; the first stays in its transaction until the second has begun, or `waits` for its lock. */
  const overlap = async (
    first: (work: (tx: Transaction) => Promise<void>) => Promise<void>,
    second: (work: (tx: Transaction) => Promise<void>) => Promise<void>,
    observer: Database,
  ): Promise<"side by side" | "one after another"> => {
    let hasBegun = false;
    let isOver = false;
    let met: "side by side" | "one after another" | undefined;
    const inFirst = Promise.withResolvers<void>();
    const one = first(async () => {
      inFirst.resolve();
      await until(async () => hasBegun || Number((await observer.get(waiting))?.["n"]) > 0);
      met = hasBegun ? "side by side" : "one after another";
      isOver = true;
    });
    await inFirst.promise;
    await second(async () => {
      hasBegun = true;
      await until(() => isOver);
    });
    await one;
    return met ?? "side by side";
  };

  const names: Record<string, Concern | "everything"> = {
    "organization 1": { org: 1 },
    "organization 2": { org: 2 },
    "user 1": { user: 1 },
    "user 2": { user: 2 },
    rows: "rows",
    everything: "everything",
  };
  const writeOn = (database: Database, name: string) => (work: (tx: Transaction) => Promise<void>) => {
    const concern = names[name] ?? "everything";
    return concern === "everything" ? database.write(work) : database.writeFor(concern, work);
  };

  for (const [first, second, expected] of [
    ["organization 1", "organization 2", "side by side"],
    ["organization 1", "organization 1", "one after another"],
    ["organization 1", "user 1", "side by side"],
    ["user 1", "user 2", "side by side"],
    ["user 1", "user 1", "one after another"],
    ["rows", "rows", "side by side"],
    ["rows", "organization 1", "side by side"],
    ["everything", "organization 1", "one after another"],
    ["organization 1", "everything", "one after another"],
    ["everything", "user 1", "one after another"],
    ["everything", "rows", "one after another"],
    ["everything", "everything", "one after another"],
  ] as const) {
    test(`writes of two replicas: ${first} and ${second} run ${expected}`, async () => {
      const [a, b, url] = await pair();
      expect(await overlap(writeOn(a, first), writeOn(b, second), await open(url))).toBe(expected);
    });
  }

  test("one replica, too, writes of two organizations side by side", async () => {
    const [a, b] = await pair();
    expect(await overlap(writeOn(a, "organization 1"), writeOn(a, "organization 2"), b)).toBe("side by side");
  });

  test("a write of release 0.1.0 waits for a write of an organization", async () => {
    const [a, b, url] = await pair();
    const old = await former(url);
    const inside = Promise.withResolvers<void>();
    let isOver = false;
    const write = a.writeFor({ org: 1 }, async () => {
      inside.resolve();
      await until(async () => Number((await b.get(waiting))?.["n"]) > 0);
      isOver = true;
    });
    await inside.promise;
    await old.begin((tx) => tx.unsafe("SELECT pg_advisory_xact_lock(8420)"));
    expect(isOver).toBe(true);
    await write;
  });

  test("while a server of release 0.1.0 is connected, writes run one after another", async () => {
    const url = await create();
    await former(url);
    const [a, b] = [await open(url), await open(url)];
    const met = await overlap(writeOn(a, "organization 1"), writeOn(b, "organization 2"), a);
    expect(met).toBe("one after another");
  });

  test("a write under the lock of another organization is refused", async () => {
    const [a] = await pair();
    const refused = await failureOf(
      a.writeFor({ org: 1 }, async (tx) => {
        requireLockOf(tx, 1);
        requireLockOf(tx, 2);
      }),
    );
    expect(String(refused)).toContain("organization 2");
    for (const concern of [{ user: 1 }, "rows"] as const) {
      const wrong = await failureOf(a.writeFor(concern, async (tx) => requireLockOf(tx, 1)));
      expect(String(wrong)).toContain("organization 1");
    }
    expect(String(await failureOf(a.writeFor({ org: 1 }, async (tx) => requireLockOf(tx, null))))).toContain(
      "no organization",
    );
    await a.write(async (tx) => requireLockOf(tx, null));
  });

  /** A transaction that leaves a notice and stays open. */
  const slowWriter = async (url: string, payload: string) => {
    const sql = new SQL(url, { max: 1 });
    ends.push(() => sql.close());
    const connection = await sql.reserve();
    await connection.unsafe("BEGIN");
    await connection.unsafe("SELECT pg_current_xact_id()");
    await connection.unsafe("INSERT INTO notices (channel, payload, created_at) VALUES ('node', $1, 0)", [
      payload,
    ]);
    return {
      end: async (how: "COMMIT" | "ROLLBACK") => {
        await connection.unsafe(how);
        await connection.release();
      },
    };
  };

  test("a notice with a lower id that commits later is read, and once", async () => {
    const [a, b, url] = await pair();
    const heard: string[] = [];
    b.listen("node", (payload) => heard.push(payload));
    const slow = await slowWriter(url, "1/slow");
    await a.writeFor({ org: 2 }, (tx) => tx.notify("node", "2/fast"));
    await until(() => heard.includes("2/fast"));
    expect(heard).toEqual(["2/fast"]);
    await slow.end("COMMIT");
    // This commit rings, too: the slow one lost its bell.
    await a.writeFor({ org: 2 }, (tx) => tx.notify("node", "2/later"));
    await until(() => heard.length >= 3);
    await a.writeFor({ org: 2 }, (tx) => tx.notify("node", "2/last"));
    await until(() => heard.includes("2/last"));
    expect(heard).toEqual(["2/fast", "1/slow", "2/later", "2/last"]);
  });

  test("a reader that starts during a transaction reads its notice, and none that was committed before", async () => {
    const [a, b, url] = await pair();
    await a.write((tx) => tx.notify("node", "before"));
    const slow = await slowWriter(url, "1/slow");
    await a.write((tx) => tx.notify("node", "fast"));
    const reader = await makeNoticeReader(b);
    expect((await reader.read()).found).toEqual([]);
    await slow.end("COMMIT");
    expect((await reader.read()).found.map(({ payload }) => payload)).toEqual(["1/slow"]);
    expect((await reader.read()).found).toEqual([]);
  });

  test("the search for a missing id ends with the transactions that might hold it, not before", async () => {
    const [a, b, url] = await pair();
    const reader = await makeNoticeReader(b);
    const lost = await slowWriter(url, "rolled back");
    const slow = await slowWriter(url, "slow");
    await a.write((tx) => tx.notify("node", "fast"));
    const look = async () => {
      const { found } = await reader.read();
      await reader.boundGaps();
      return found.map(({ payload }) => payload);
    };
    expect([await look(), reader.missing()]).toEqual([["fast"], 2]);
    await lost.end("ROLLBACK");
    // Other transactions come and go; the slow one still runs.
    for (let n = 0; n < 5; n++) await put(a, `key ${n}`, "");
    expect([await look(), reader.missing()]).toEqual([[], 2]);
    await slow.end("COMMIT");
    expect([await look(), reader.missing()]).toEqual([["slow"], 0]);
  });

  test("of many writers side by side, every notice is heard once by every replica", async () => {
    const [a, b] = await pair();
    const heard = [a, b].map((database) => {
      const payloads: string[] = [];
      database.listen("node", (payload) => payloads.push(payload));
      return payloads;
    });
    const sent = Array.from({ length: 600 }, (_, at) => `${at % 20}/${at}`);
    await Promise.all(
      sent.map(async (payload, at) => {
        // Not all at once: the batches of the lines would hold them together.
        await Bun.sleep(at % 97);
        await (at % 2 === 0 ? a : b).writeFor({ org: at % 20 }, (tx) => tx.notify("node", payload));
      }),
    );
    await until(() => heard.every((payloads) => payloads.length >= sent.length));
    await Bun.sleep(100);
    for (const payloads of heard) expect(payloads.toSorted()).toEqual(sent.toSorted());
  });
});
