import { afterEach, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AppError } from "../../../../src/base/errors.ts";
import type { Database } from "../../../../src/server/store/database.ts";
import { openSqlite } from "../../../../src/server/store/sqlite/sqlite.ts";
import { checkDatabase, isAlone, removeTraces } from "../../../../src/server/store/sqlite/files.ts";
import { sqliteFiles } from "../../../../src/base/open-file.ts";
import { rejection } from "../../../pki/thrown.ts";
import { keys, put, storeCases } from "../cases.ts";

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

describe("openSqlite()", () => {
  storeCases(
    async () => (await open()).database,
    async (of) => (await open(opened.find(({ database }) => database === of)?.directory)).database,
  );

  test("a full disk is storage_unavailable for the whole batch; then it recovers", async () => {
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

  test("a FIFO in place of a file that SQLite opens is refused, where SQLite would wait for ever", async () => {
    const { database, directory } = await open();
    await database.close();
    const path = join(directory, "control.db");
    for (const each of sqliteFiles(path)) {
      const aside = `${each}.aside`;
      if (existsSync(each)) renameSync(each, aside);
      expect(Bun.spawnSync(["mkfifo", each]).exitCode).toBe(0);
      const ways = [() => open(directory), () => open(directory, "visitor"), async () => isAlone(path)];
      for (const way of [...ways, async () => checkDatabase(path), async () => removeTraces(path)])
        expect((await rejection(way())).message).toBe(`Cannot open ${each}: it is a FIFO, not a file`);
      rmSync(each);
      if (existsSync(aside)) renameSync(aside, each);
    }
  });

  test("a server hears each commit of another process once", async () => {
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

  test("a server that asks has heard all that other processes committed; a visitor never knows", async () => {
    const { database, directory } = await open();
    const visitor = await open(directory, "visitor");
    const heard: string[] = [];
    database.listen("auth", (payload) => heard.push(payload));
    await visitor.database.write((tx) => tx.notify("auth", "user 5"));
    expect(database.hasHeardAll()).toBe(true);
    expect(heard).toEqual(["user 5"]);
    expect(visitor.database.hasHeardAll()).toBe(false);
  });
});
