// The same cases on SQLite and PostgreSQL: both must behave alike.

import { expect, test } from "bun:test";
import { AppError } from "../../../src/base/errors.ts";
import { NotUnique, type Database } from "../../../src/server/store/database.ts";
import { within } from "../../../src/server/store/savepoint.ts";

export const put = (database: Database, key: string, value: string) =>
  database.write((tx) => tx.run("INSERT INTO meta (key, value) VALUES ($1, $2)", [key, value]));

export const keys = async (database: Database) =>
  (await database.all("SELECT key FROM meta WHERE key <> 'schema_readable_from' ORDER BY key")).map(
    (row) => row["key"],
  );

/** Undefined if it does not fail. */
export const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  );

/** `open` returns an empty database; `again` opens the same one as another process does. */
export function storeCases(open: () => Promise<Database>, again: (of: Database) => Promise<Database>): void {
  test("binds $1 and $2 by number in any order", async () => {
    const database = await open();
    const row = await database.get("SELECT $2 + 0 AS b, $1 || '' AS a, $2 + 1 AS c", ["one", 2]);
    expect(row).toEqual({ a: "one", b: 2, c: 3 });
    const tooFew = database.get("SELECT $1 || '' AS a, $2 || '' AS b", ["one"]);
    expect(await failureOf(tooFew)).toBeInstanceOf(Error);
  });

  test("numbers, strings, NULL and JSON are read back unchanged", async () => {
    const database = await open();
    const at = Date.UTC(2026, 10, 21);
    const id = await database.write(async (tx) => {
      const row = await tx.get(
        `INSERT INTO organizations (slug, name, network, order_key_sealed, order_public, config_overrides, created_at)
         VALUES ($1, $2, $3, '', '', $4, $5) RETURNING id`,
        ["acme", "Ä 'quoted' \"name\"", "10.0.0.0/8", '{"a":[1]}', at],
      );
      return Number(row?.["id"]);
    });
    expect(
      await database.get(
        "SELECT id, name, network6, config_overrides, created_at FROM organizations WHERE id = $1",
        [id],
      ),
    ).toEqual({
      id,
      name: "Ä 'quoted' \"name\"",
      network6: null,
      config_overrides: '{"a":[1]}',
      created_at: at,
    });
    expect(await database.get("SELECT count(*) AS n FROM organizations WHERE created_at > $1", [at])).toEqual(
      {
        n: 0,
      },
    );
  });

  test("refuses text that one of the two would refuse or change, in reads and writes, and stores all else", async () => {
    const database = await open();
    for (const bad of ["a\0b", "\ud800", "\udfff@a.example"]) {
      const ways = [
        () => put(database, "k", bad),
        () => put(database, bad, "v"),
        () => database.get("SELECT key FROM meta WHERE key = $1", [bad]),
        () => database.all("SELECT key FROM meta WHERE key = $1", [bad]),
        () =>
          database.write((tx) =>
            tx.get("INSERT INTO meta (key, value) VALUES ('k', $1) RETURNING key", [bad]),
          ),
      ];
      for (const way of ways) expect(await failureOf(way())).toMatchObject({ code: "bad_request" });
    }
    expect(await keys(database)).toEqual([]);
    await put(database, "\ufffd", "😀");
    expect(await database.get("SELECT value FROM meta WHERE key = $1", ["\ufffd"])).toEqual({ value: "😀" });
  });

  test("a failing work is undone alone; others in the same commit stay", async () => {
    const database = await open();
    await put(database, "count", "");
    const count = () =>
      database.write((tx) => tx.run("UPDATE meta SET value = value || 'I' WHERE key = 'count'"));
    const results = await Promise.allSettled([
      count(),
      put(database, "a", "1"),
      put(database, "a", "2"),
      database.write(async (tx) => {
        await tx.run("INSERT INTO meta (key, value) VALUES ('b', '')");
        throw new AppError("conflict", "no");
      }),
      put(database, "c", "3"),
      count(),
    ]);
    const [, , refused] = results;
    expect(results.map((each) => each.status === "fulfilled")).toEqual([
      true,
      true,
      false,
      false,
      true,
      true,
    ]);
    expect(refused?.status === "rejected" && refused.reason instanceof NotUnique).toBe(true);
    expect(await keys(database)).toEqual(["a", "c", "count"]);
    expect(await database.get("SELECT value FROM meta WHERE key = 'count'")).toEqual({ value: "II" });
  });

  test("readers see nothing before the commit and everything after it", async () => {
    const database = await open();
    const seen: unknown[] = [];
    await database.write(async (tx) => {
      await tx.run("INSERT INTO meta (key, value) VALUES ('a', '')");
      seen.push(
        (await tx.all("SELECT key FROM meta WHERE key <> 'schema_readable_from'")).length,
        (await keys(database)).length,
      );
    });
    expect(seen).toEqual([1, 0]);
    expect(await keys(database)).toEqual(["a"]);
  });

  test("a write returns the number of changed rows", async () => {
    const database = await open();
    await put(database, "a", "");
    await put(database, "b", "");
    const update = (key: string) =>
      database.write((tx) => tx.run("UPDATE meta SET value = 'x' WHERE key >= $1 AND key < 'd'", [key]));
    expect([await update("a"), await update("b"), await update("c")]).toEqual([2, 1, 0]);
  });

  test("writes of two processes never overlap: a counter is exact", async () => {
    const database = await open();
    const other = await again(database);
    await put(database, "counter", "0");
    const increase = (on: Database) =>
      on.write(async (tx) => {
        const row = await tx.get("SELECT value FROM meta WHERE key = 'counter'");
        const value = String(Number(row?.["value"]) + 1);
        await tx.run("UPDATE meta SET value = $1 WHERE key = 'counter'", [value]);
      });
    await Promise.all(Array.from({ length: 100 }, (_, at) => increase(at % 2 === 0 ? database : other)));
    expect(await database.get("SELECT value FROM meta WHERE key = 'counter'")).toEqual({ value: "100" });
  });

  test("a database of a newer program is refused", async () => {
    const database = await open();
    await database.write(async (tx) => {
      await tx.run("INSERT INTO migrations (version, applied_at) VALUES (999, 0)");
      await tx.run("UPDATE meta SET value = '998' WHERE key = 'schema_readable_from'");
    });
    expect(String(await failureOf(again(database)))).toContain("version 999");
  });

  test("listeners hear of commits, and not of failed writes", async () => {
    const database = await open();
    const heard: string[] = [];
    const stop = database.listen("organization", (payload) => heard.push(payload));
    await database.write((tx) => tx.notify("organization", "1"));
    await Promise.allSettled([
      database.write(async (tx) => {
        await tx.notify("organization", "2");
        throw new Error("no");
      }),
    ]);
    expect(heard).toEqual(["1"]);
    // A failing work in the same commit: the other notices are delivered once.
    await Promise.allSettled([
      database.write((tx) => tx.notify("organization", "3")),
      database.write(() => Promise.reject(new Error("no"))),
      database.write((tx) => tx.notify("organization", "4")),
    ]);
    expect(heard).toEqual(["1", "3", "4"]);
    stop();
    await database.write((tx) => tx.notify("organization", "5"));
    expect(heard).toEqual(["1", "3", "4"]);
  });

  test("writes within a transaction are part of it, and one that fails is undone alone", async () => {
    const database = await open();
    const outer = (fails: boolean) =>
      database.write(async (tx) => {
        const inside = within(database, tx);
        await put(inside, "a", "");
        const nested = inside.writeFor({ org: 1 }, async () => {
          await put(inside, "b", "");
          return put(inside, "a", "twice");
        });
        expect(await failureOf(nested)).toBeInstanceOf(NotUnique);
        await put(inside, "c", "");
        expect(await keys(inside)).toEqual(["a", "c"]);
        if (fails) throw new AppError("conflict", "no");
      });
    expect(await failureOf(outer(true))).toBeInstanceOf(AppError);
    expect(await keys(database)).toEqual([]);
    await outer(false);
    expect(await keys(database)).toEqual(["a", "c"]);
  });

  test("a closed database refuses writes and commits those queued before", async () => {
    const database = await open();
    const other = await again(database);
    const last = put(other, "last", "");
    await other.close();
    await last;
    expect(await keys(database)).toEqual(["last"]);
    expect(String(await failureOf(put(other, "late", "")))).toContain("closed");
  });
}
