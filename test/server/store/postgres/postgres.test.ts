import { SQL } from "bun";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { closeSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { AppError } from "../../../../src/base/errors.ts";
import type { Database } from "../../../../src/server/store/database.ts";
import { openPostgres } from "../../../../src/server/store/postgres/postgres.ts";
import { fitnessSql, requireFit, sessionSettings } from "../../../../src/server/store/postgres/refusals.ts";
import { queryNumber } from "../../../../src/server/store/table.ts";
import { realSystem } from "../../../../src/base/system.ts";
import { runSync } from "../../../support/debian.ts";
import {
  asPostgres,
  createDatabase,
  describePostgres,
  openedAt,
  programs,
  startPostgres,
  unsynced,
  type Postgres,
} from "../../../support/postgres.ts";
import { makeTestServer } from "../../../support/server.ts";
import { failureOf, keys, put, storeCases } from "../cases.ts";

/** The sessions that are in a transaction and wait for us. */
function waiting(database: Database): Promise<number> {
  const sql = `SELECT count(*) AS n FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'idle in transaction'`;
  return queryNumber(database, sql);
}

describePostgres("openPostgres()", () => {
  let cluster: Postgres;
  const opened = new Map<Database, string>();

  beforeAll(async () => {
    cluster = await startPostgres();
  });
  afterAll(async () => {
    await cluster.stop();
  });
  afterEach(async () => {
    for (const database of opened.keys()) await database.close();
    opened.clear();
  });

  const openAt = async (url: string, role: "server" | "visitor" = "server") => {
    const database = await openPostgres({ url, now: Date.now, role });
    opened.set(database, url);
    return database;
  };
  const open = async () => openAt(await createDatabase(cluster.directory));
  const again = (database: Database) => openAt(opened.get(database) ?? "");
  const ended = (database: Database) =>
    database.get(
      "SELECT count(pg_terminate_backend(pid)) AS n FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
  /** A new database and a role without other rights. `administer` runs SQL as superuser; ROLE is the role's name. */
  const withRole = async (isOwner: boolean) => {
    const url = new URL(await createDatabase(cluster.directory));
    const own = url.pathname.slice(1);
    const administer = async (sql: string) => {
      await using session = new SQL(url.href, { max: 1 });
      await session.unsafe(sql.replaceAll("ROLE", own)).simple();
    };
    await administer(`CREATE USER ROLE${isOwner ? `; ALTER DATABASE ${own} OWNER TO ROLE` : ""}`);
    return { url: url.href.replace("postgres@", `${own}@`), administer };
  };
  const until = async (done: () => boolean) => {
    while (!done()) await Bun.sleep(5);
  };

  storeCases(open, again);

  test("damage that a statement or another process meets is told; no server is taken out for it", async () => {
    await using damaged = await startPostgres(unsynced);
    const url = await createDatabase(damaged.directory);
    const visit = () => openPostgres({ url, now: Date.now, role: "visitor" });
    await (await visit()).close();
    const session = new SQL(url, { max: 1 });
    const pathOf = async (table: string) => {
      const [row] = await session.unsafe(`SELECT pg_relation_filepath('${table}') AS path`);
      return join(damaged.directory, "data", v.parse(v.object({ path: v.string() }), row).path);
    };
    for (const name of ["met", "counted"])
      await session.unsafe(`CREATE TABLE ${name} AS SELECT repeat('x', 1000) AS text`);
    const files = [await pathOf("met"), await pathOf("counted")];
    await session.close();
    await damaged.restart(async () => {
      runSync([...asPostgres, `${programs}/pg_checksums`, "--enable", "-D", join(damaged.directory, "data")]);
      for (const path of files) {
        const file = openSync(path, "r+");
        writeSync(file, "damage", 8000);
        closeSync(file);
      }
    });
    await using server = await makeTestServer({ open: openedAt(url), secretKey: new Uint8Array(32) });
    const examine = () => server.db.examine({ run: realSystem().run, executable: "" });
    const ready = async () => {
      const { status, json } = await server.send("GET", "/readyz");
      return [status, v.parse(v.object({ warnings: v.array(v.string()) }), json).warnings];
    };
    await examine();
    expect(await ready()).toEqual([200, []]);
    const other = new SQL(url, { max: 1 });
    expect(await failureOf(other.unsafe("SELECT * FROM counted"))).toMatchObject({ errno: "XX001" });
    await other.close();
    // PostgreSQL counts it at the end of the session.
    while (server.db.damage() === undefined) await examine();
    expect(server.db.damage()).toContain("checksums of pages failed 1 times");
    expect(await ready()).toEqual([200, ["database_damaged"]]);
    const fresh = await visit();
    expect(await failureOf(fresh.all("SELECT * FROM met"))).toMatchObject({ code: "storage_unavailable" });
    expect(fresh.damage()).toContain("invalid page");
    await fresh.close();
  });

  test("replicas that open an empty database together create its tables once", async () => {
    const url = await createDatabase(cluster.directory);
    const databases = await Promise.all([openAt(url), openAt(url), openAt(url)]);
    for (const database of databases) {
      expect(await database.get("SELECT count(*) AS n FROM migrations WHERE version = 1")).toEqual({ n: 1 });
    }
  });

  test("a database that took no changes for a while is written again without a new start", async () => {
    const { url, administer } = await withRole(true);
    const database = await openAt(url);
    const name = new URL(url).pathname.slice(1);
    let count = 0;
    // Side by side, on all connections.
    const writeAll = () =>
      Promise.all(
        Array.from({ length: 8 }, (_, at) =>
          failureOf(
            database.writeFor({ org: at }, (tx) =>
              tx.run("INSERT INTO meta (key, value) VALUES ($1, '')", [`key ${count++}`]),
            ),
          ),
        ),
      );
    expect((await writeAll()).filter((each) => each !== undefined)).toEqual([]);
    await administer(`ALTER DATABASE ${name} SET default_transaction_read_only = on`);
    await administer(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    for (let at = 0; at < 3; at++) {
      const codes = (await writeAll()).map((each) => (each instanceof AppError ? each.code : each));
      expect(codes).toEqual(Array(8).fill("storage_unavailable"));
    }
    await administer(`BEGIN READ WRITE; ALTER DATABASE ${name} RESET default_transaction_read_only; COMMIT`);
    for (let at = 0; at < 3; at++)
      expect((await writeAll()).filter((each) => each !== undefined)).toEqual([]);
  });

  test("a replica hears each commit of a replica or admin command once", async () => {
    const database = await open();
    const replica = await again(database);
    const admin = await openAt(opened.get(database) ?? "", "visitor");
    const heard: string[] = [];
    const own: string[] = [];
    replica.listen("node", (payload) => heard.push(payload));
    database.listen("node", (payload) => own.push(payload));
    await database.write((tx) => tx.notify("node", "1/1"));
    await admin.write((tx) => tx.notify("node", "1/2"));
    await until(() => heard.length >= 2 && own.length >= 2);
    await put(database, "later", "");
    await Bun.sleep(50);
    expect(heard).toEqual(["1/1", "1/2"]);
    expect(own).toEqual(["1/1", "1/2"]);
  });

  test("a replica hears later of commits that it missed while disconnected", async () => {
    const database = await open();
    const replica = await again(database);
    const heard: string[] = [];
    replica.listen("organization", (payload) => heard.push(payload));
    await ended(database);
    await database.write((tx) => tx.notify("organization", "7")).catch(() => undefined);
    await database.write((tx) => tx.notify("organization", "8"));
    await until(() => heard.includes("8"));
    await put(replica, "writes again", "");
    expect(heard.filter((each) => each === "8")).toEqual(["8"]);
  });

  test("a replica learns that the database went back before a change that it had read", async () => {
    const database = await open();
    const replica = await again(database);
    const heard: string[] = [];
    replica.listen("organization", (payload) => heard.push(payload));
    let isRewound = false;
    void replica.rewound?.then(() => (isRewound = true));
    for (const payload of ["1", "2"]) await database.write((tx) => tx.notify("organization", payload));
    await until(() => heard.includes("2"));
    // As after a failover that lost the last change: another one gets its id.
    await database.write((tx) =>
      tx.run("UPDATE notices SET created_at = created_at - 1 WHERE id = (SELECT max(id) FROM notices)"),
    );
    await until(() => isRewound);
  }, 60_000);

  test("old notices are deleted, but for the newest: a replica looks for the last one that it has read", async () => {
    const database = await open();
    await database.write(async (tx) => {
      await tx.run(
        "INSERT INTO notices (id, channel, payload, created_at) VALUES (1, 'node', '', 0), (1500, 'node', '', 0)",
      );
      await tx.run("SELECT setval(pg_get_serial_sequence('notices', 'id'), 1999)");
    });
    await database.write((tx) => tx.notify("node", "newest"));
    const ids = async () => (await database.all("SELECT id FROM notices ORDER BY id")).map(({ id }) => id);
    expect(await ids()).toEqual([1500, 2000]);
  }, 60_000);

  test.each([
    [
      "a role's own time-outs",
      "ALTER USER ROLE SET statement_timeout = 1; ALTER USER ROLE SET lock_timeout = 1",
    ],
    ["commits that are not on disk", "ALTER USER ROLE SET synchronous_commit = off"],
  ])(
    "%s are not in force",
    async (_, alter) => {
      const { url, administer } = await withRole(true);
      await administer(alter);
      const database = await openAt(url);
      const settings = `SELECT current_setting('statement_timeout') AS statement,
      current_setting('lock_timeout') AS lock, current_setting('synchronous_commit') AS commit`;
      expect(await database.get(settings)).toEqual({ statement: "0", lock: "15s", commit: "on" });
      await put(database, "key", "");
    },
    60_000,
  );

  test.each([
    [
      "a role that may not create tables",
      false,
      "",
      "cannot create or use the tables: permission denied for schema public",
    ],
    ["tables of another program", true, "CREATE TABLE users (id INT)", "tables of another program: users"],
    [
      "migrations of another program",
      true,
      "CREATE TABLE migrations (version BIGINT)",
      "tables of another program: migrations",
    ],
  ])(
    "%s is bad_configuration",
    async (_, isOwner, create, reason) => {
      const { url, administer } = await withRole(isOwner);
      if (create !== "") await administer(create);
      const refused = await failureOf(openPostgres({ url, now: Date.now }));
      expect(refused).toMatchObject({ code: "bad_configuration", message: expect.stringContaining(reason) });
    },
    60_000,
  );

  test("a pooler that drops our settings, and a standby, are refused", async () => {
    const direct = { standby: 0, ...sessionSettings };
    requireFit(direct);
    for (const [row, code] of [
      [{ ...direct, lock_timeout: "0" }, "bad_configuration"],
      [{ ...direct, standby: 1 }, "storage_unavailable"],
    ] as const)
      expect(() => requireFit(row)).toThrow(expect.objectContaining({ code }));
    const database = await open();
    expect(await database.get(fitnessSql)).toEqual(direct);
  });

  test("a write that loses its connection before the commit is run again, and stored once", async () => {
    const database = await open();
    const other = await openAt(opened.get(database) ?? "", "visitor");
    let runs = 0;
    await database.write(async (tx) => {
      await tx.run("INSERT INTO meta (key, value) VALUES ('half', '')");
      if (++runs === 1) await ended(other);
      await tx.run("INSERT INTO meta (key, value) VALUES ('whole', '')");
    });
    // Other idle connections of the pool ended too: the second run may meet one of them.
    expect(runs).toBeGreaterThan(1);
    expect(await keys(database)).toEqual(["half", "whole"]);
  });

  test("while the server is down, all is storage_unavailable; then it recovers", async () => {
    await using own = await startPostgres();
    const database = await openAt(await createDatabase(own.directory));
    await put(database, "before", "");
    await own.restart(async () => {
      for (const act of [() => put(database, "while", ""), () => database.get("SELECT 1")]) {
        const refused = await failureOf(act());
        expect(refused instanceof AppError && refused.code).toBe("storage_unavailable");
      }
    });
    await put(database, "after", "");
    expect(await keys(database)).toEqual(["after", "before"]);
    await database.close();
    opened.delete(database);
  }, 120_000);

  test("writes use a session that was used before; writes at the same time use others", async () => {
    const database = await open();
    const session = (org: number, meanwhile: Promise<void> = Promise.resolve()) =>
      database.writeFor({ org }, async (tx) => {
        const row = await tx.get("SELECT pg_backend_pid() AS pid");
        await meanwhile;
        return row?.["pid"];
      });
    const alone: unknown[] = [];
    for (let org = 1; org <= 10; org++) alone.push(await session(org));
    expect(new Set(alone).size).toBe(1);
    const { promise, resolve } = Promise.withResolvers<void>();
    const together = Array.from({ length: 8 }, (_, at) => session(at, promise));
    while ((await waiting(database)) < together.length) await Bun.sleep(5);
    resolve();
    expect(new Set(await Promise.all(together)).size).toBe(8);
    expect(await session(1)).toBeOneOf(await Promise.all(together));
  }, 60_000);

  test("whole numbers are compared as int8 and use the index", async () => {
    const database = await open();
    const plan = await database.all("EXPLAIN SELECT jti_hash FROM refresh_tokens WHERE expires_at > $1", [
      Date.now(),
    ]);
    expect(JSON.stringify(plan)).not.toContain("double precision");
    expect(plan.length).toBeGreaterThan(0);
  });
});

describe("openPostgres() without a server", () => {
  test("is storage_unavailable, without the password in the message", async () => {
    const url = "postgres://somebody:secret-word@127.0.0.1:1/nothing";
    const refused = await failureOf(openPostgres({ url, now: Date.now }));
    expect(refused instanceof AppError && refused.code).toBe("storage_unavailable");
    const said = `${String(refused)} ${refused instanceof AppError ? refused.details.hint : ""}`;
    expect(said).not.toContain("secret-word");
    expect(said).toContain("Check that PostgreSQL runs");
  });
});
