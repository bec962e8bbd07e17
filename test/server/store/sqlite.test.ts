import { afterEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AppError } from "../../../src/errors.ts";
import { NotUnique, type Database } from "../../../src/server/store/database.ts";
import { openSqlite } from "../../../src/server/store/sqlite.ts";

const opened: { database: Database; directory: string }[] = [];

async function open(
  directory = mkdtempSync(join(tmpdir(), "sqlite-test-")),
  role: "server" | "visitor" = "server",
) {
  const database = await openSqlite({
    path: join(directory, "control.db"),
    now: () => 1000,
    role,
    pollMs: 20,
  });
  opened.push({ database, directory });
  return { database, directory };
}

afterEach(async () => {
  for (const { database, directory } of opened.splice(0)) {
    await database.close();
    rmSync(directory, { recursive: true, force: true });
  }
});

const put = (database: Database, key: string, value: string) =>
  database.write((tx) => tx.run("INSERT INTO meta (key, value) VALUES ($1, $2)", [key, value]));
const keys = async (database: Database) =>
  (await database.all("SELECT key FROM meta ORDER BY key")).map((row) => row["key"]);

async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => undefined,
    (error: unknown) => error,
  );
}

describe("openSqlite()", () => {
  test("binds $1 $2 by number, wherever they stand", async () => {
    const { database } = await open();
    expect(await database.get("SELECT $2 AS b, $1 AS a, $2 AS c", ["one", 2])).toEqual({
      a: "one",
      b: 2,
      c: 2,
    });
    expect(await failureOf(database.get("SELECT $1 AS a, $2 AS b", ["one"]))).toBeInstanceOf(Error);
  });

  test("a failing work undoes itself alone, its neighbours in the same commit stand", async () => {
    const { database } = await open();
    const results = await Promise.allSettled([
      put(database, "a", "1"),
      put(database, "a", "2"),
      database.write(async (tx) => {
        await tx.run("INSERT INTO meta (key, value) VALUES ('b', '')");
        throw new AppError("conflict", "no");
      }),
      put(database, "c", "3"),
    ]);
    expect(results.map((each) => each.status)).toEqual(["fulfilled", "rejected", "rejected", "fulfilled"]);
    const refused = results[1];
    expect(refused?.status === "rejected" && refused.reason instanceof NotUnique).toBe(true);
    expect(await keys(database)).toEqual(["a", "c"]);
  });

  test("nothing is seen from outside before the commit, everything after it", async () => {
    const { database } = await open();
    const seen: unknown[] = [];
    await database.write(async (tx) => {
      await tx.run("INSERT INTO meta (key, value) VALUES ('a', '')");
      seen.push((await tx.all("SELECT key FROM meta")).length, (await keys(database)).length);
    });
    expect(seen).toEqual([1, 0]);
    expect(await keys(database)).toEqual(["a"]);
  });

  test("a full disk is storage_unavailable for all of the batch, and it recovers by itself", async () => {
    const { database } = await open();
    await put(database, "before", "");
    await database.write((tx) => tx.get("PRAGMA max_page_count = 1"));
    const big = "x".repeat(200_000);
    const results = await Promise.allSettled([put(database, "small", ""), put(database, "big", big)]);
    for (const each of results) {
      expect(each.status === "rejected" && each.reason instanceof AppError && each.reason.code).toBe(
        "storage_unavailable",
      );
    }
    expect(await keys(database)).toEqual(["before"]);
    await database.write((tx) => tx.get("PRAGMA max_page_count = 1000000"));
    await put(database, "big", big);
    expect(await keys(database)).toEqual(["before", "big"]);
  });

  test("a database of a newer program is refused", async () => {
    const { database, directory } = await open();
    await database.write((tx) => tx.run("INSERT INTO migrations (version, applied_at) VALUES (999, 0)"));
    expect(String(await failureOf(open(directory)))).toContain("version 999");
  });

  test("listeners hear of a commit, and of none that failed", async () => {
    const { database } = await open();
    const heard: string[] = [];
    const stop = database.listen("organization", (payload) => heard.push(payload));
    await database.write((tx) => tx.notify("organization", "1"));
    await Promise.allSettled([
      database.write(async (tx) => {
        await tx.notify("organization", "2");
        throw new Error("no");
      }),
    ]);
    stop();
    await database.write((tx) => tx.notify("organization", "3"));
    expect(heard).toEqual(["1"]);
  });

  test("a server hears what another process commits, once", async () => {
    const { database, directory } = await open();
    const visitor = await open(directory, "visitor");
    const heard: string[] = [];
    const first = new Promise<void>((resolve) => {
      database.listen("auth", (payload) => {
        heard.push(payload);
        resolve();
      });
    });
    await visitor.database.write((tx) => tx.notify("auth", "user 5"));
    await first;
    await put(visitor.database, "x", "");
    await Bun.sleep(80);
    expect(heard).toEqual(["user 5"]);
  });
});
