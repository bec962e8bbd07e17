// A database host that loses its power answers nothing and closes no connection.

import { expect, test } from "bun:test";
import { AppError } from "../../../src/base/errors.ts";
import { openPostgres } from "../../../src/server/store/postgres/postgres.ts";
import { describePostgres, startMigrated } from "../../support/postgres.ts";
import { startSilentRelay } from "../../support/silent-relay.ts";
import { failureOf, keys, put } from "./cases.ts";

describePostgres("a silent PostgreSQL", () => {
  test("reads and writes are refused instead of waiting, and go on when it is back", async () => {
    await using cluster = await startMigrated();
    using relay = startSilentRelay(cluster.directory);
    const direct = await cluster.database();
    const url = `postgres://postgres@127.0.0.1:${relay.port}${new URL(direct).pathname}`;
    const database = await openPostgres({ url, now: Date.now });
    const other = await openPostgres({ url: direct, now: Date.now });
    const heard: string[] = [];
    database.listen("node", (payload) => heard.push(payload));
    await put(database, "before", "");

    relay.fallSilent();
    const refused = await Promise.all(
      [
        put(database, "while", ""),
        database.get("SELECT 1"),
        database.writeFor({ org: 1 }, (tx) => tx.get("SELECT 1")),
      ].map(failureOf),
    );
    expect(refused.map((error) => error instanceof AppError && error.code)).toEqual(
      Array.from({ length: 3 }, () => "storage_unavailable"),
    );
    await other.write((tx) => tx.notify("node", "meanwhile"));

    relay.comeBack();
    while ((await failureOf(put(database, "after", ""))) !== undefined) await Bun.sleep(100);
    await other.write((tx) => tx.notify("node", "later"));
    while (heard.length < 2) await Bun.sleep(20);
    expect(heard).toEqual(["meanwhile", "later"]);
    expect(await keys(other)).toEqual(["after", "before"]);
    for (const each of [database, other]) await each.close();
  }, 120_000);
});
