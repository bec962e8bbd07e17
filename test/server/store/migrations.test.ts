// Migrates the fixture with data of the former version. Everything that worked on it must still work.

import { SQL } from "bun";
import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Database as Sqlite } from "bun:sqlite";
import { openPostgres } from "../../../src/server/store/postgres/postgres.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import {
  formerVersion,
  newestVersion,
  schemaStatements,
  tableNames,
} from "../../../src/server/store/migrations.ts";
import { users } from "../../../src/server/store/tables/users.ts";
import { fixture, writeFixture } from "../../support/fixture.ts";
import { registerNode } from "../../support/nodes.ts";
import { makeTestServer } from "../../support/server.ts";
import { until } from "../../support/until.ts";
import { flowsKeyVersion, undoFlowsKey } from "../../support/former-history.ts";
import { describePostgres, useMigrated } from "../../support/postgres.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const now = Date.parse(fixture.made_at);

/** All declared tables. */
const directory = join(import.meta.dir, "../../../src/server/store/tables");
const files: object[] = await Promise.all(
  readdirSync(directory).map((file) => import(join(directory, file))),
);
const tables = files
  .flatMap((file): unknown[] => Object.values(file))
  .filter((each): each is typeof users => typeof each === "object" && each !== null && "columnNames" in each);

function columnsOf(database: Sqlite, table: string): string[] {
  return database
    .query<{ name: string; type: string; notnull: number; dflt_value: string | null }, []>(
      `PRAGMA table_xinfo(${table})`,
    )
    .all()
    .map(({ name, type, notnull, dflt_value: preset }) => `${name} ${type} ${notnull} ${preset}`)
    .sort();
}

function indexesOf(database: Sqlite): string[] {
  return database
    .query<{ sql: string }, []>("SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
    .all()
    .map(({ sql }) => sql.replace(/\s+/g, " "))
    .sort();
}

async function migrated(path: string): Promise<Sqlite> {
  await (await openSqlite({ path, now: () => now, role: "visitor" })).close();
  return new Sqlite(path, { strict: true });
}

test("the former version's database gets the tables, columns and indexes of a new one", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "control.db");
  writeFixture(path);
  using old = await migrated(path);
  using fresh = await migrated(join(directory.path, "fresh.db"));
  for (const table of tableNames) {
    if (table !== "migrations")
      expect([table, columnsOf(old, table)]).toEqual([table, columnsOf(fresh, table)]);
  }
  expect(indexesOf(old)).toEqual(indexesOf(fresh));
});

test("declarations and database have the same tables and columns", async () => {
  using directory = temporaryDirectory();
  using database = await migrated(join(directory.path, "control.db"));
  expect(tables.map(({ name }) => name).toSorted()).toEqual(
    tableNames.filter((name) => name !== "migrations").toSorted(),
  );
  for (const { name, columnNames } of tables) {
    const found = columnsOf(database, name).map((column) => column.split(" ")[0] ?? "");
    expect([name, columnNames.toSorted()]).toEqual([name, found.toSorted()]);
  }
});

test("users, sessions, tokens, nodes and a CA rotation of the former version still work", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "control.db");
  writeFixture(path);
  await using server = await makeTestServer({
    secretKey: fixture.secret_key,
    open: async () => ({
      db: await openSqlite({ path, now: () => now, role: "server" }),
      dispose: () => undefined,
    }),
  });
  server.clock.ms = now;
  const { access, refresh } = fixture.session;
  const status = async (...args: Parameters<typeof server.send>) => (await server.send(...args)).status;
  expect(await status("GET", "/api/org/acme/members/", { token: access })).toBe(200);
  expect(await status("POST", "/api/token/refresh/", { body: { refresh } })).toBe(200);
  const credentials = { email: fixture.member, password: fixture.password };
  expect(await status("POST", "/api/token/", { body: credentials })).toBe(200);
  const services = "/api/org/acme/service_tokens/";
  const lastUses = async () => {
    const { json } = await server.send("GET", services, { token: access });
    return (json as { last_used_at: string | null }[]).map(({ last_used_at }) => last_used_at);
  };
  expect(await lastUses()).toEqual([null]);
  expect(await status("GET", "/api/org/acme/nodes/", { token: fixture.service_token })).toBe(200);
  await until(async () => (await lastUses())[0] !== null);
  const { alpha, gone } = fixture.nodes;
  const checkin = (node: typeof alpha) =>
    server.send("POST", `/api/org/acme/nodes/${node.credentials.node_id}/checkin/`, {
      token: node.credentials.api_token,
      body: { version: "0.1.0", uptime: 1, config_version: 1 },
    });
  expect((await checkin(alpha)).status).toBe(200);
  expect((await checkin(gone)).json).toMatchObject({ code: "node_revoked", order: expect.any(String) });
  const files = await server.send(
    "GET",
    `/api/org/acme/nodes/${alpha.credentials.node_id}/download_config/`,
    {
      token: alpha.credentials.api_token,
    },
  );
  expect(files.status).toBe(200);
  const org = await server.db.get("SELECT id, slug FROM organizations WHERE slug = 'acme'");
  const acme = { id: Number(org?.["id"]), slug: "acme" };
  const registered = await registerNode(server, acme as Parameters<typeof registerNode>[1], "newcomer", {
    registration_token: fixture.registration_token,
  });
  expect(registered.ip).toBe("10.77.0.6");
  const authorities = await server.send("GET", "/api/org/acme/ca/", { token: access });
  expect(authorities.json).toMatchObject({ rotation: { phase: "trust" } });
});

/** Two nodes, four days, the newest first, three kinds. */
const formerFlows = [1, 2].flatMap((node) =>
  [3, 2, 1, 0].flatMap((day) =>
    [0, 1, 2].map(
      (side) =>
        `INSERT INTO flows VALUES (${node}, ${day}, ${side}, 3, '10.77.0.${side}', 'tcp', 22, 1, ${day}, 1, 5, 6, 7, 'boot-1')`,
    ),
  ),
);
const allFlows = "SELECT * FROM flows ORDER BY node_id, day, side";

test("flows of the version before are all there, and nothing of their former table is left", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "control.db");
  writeFixture(path);
  const read = (database: Sqlite) => database.query<object, []>(allFlows).all();
  const before = (() => {
    using former = new Sqlite(path, { strict: true });
    const begun = schemaStatements(formerVersion).length;
    for (const statement of schemaStatements(flowsKeyVersion - 1).slice(begun)) former.run(statement);
    for (let version = formerVersion + 1; version < flowsKeyVersion; version++)
      former.run("INSERT INTO migrations VALUES (?, 0)", [version]);
    for (const statement of formerFlows) former.run(statement);
    return read(former);
  })();
  using database = await migrated(path);
  expect(read(database)).toEqual(before.map((row) => ({ ...row, block: 0 })));
  expect(before).toHaveLength(formerFlows.length);
  expect(columnsOf(database, "former_flows")).toEqual([]);
});

describePostgres("on PostgreSQL", () => {
  const createDatabase = useMigrated();

  test("flows of the version before are all there, by their new key", async () => {
    const url = await createDatabase();
    await using sql = new SQL(url);
    await undoFlowsKey(sql);
    await sql`INSERT INTO organizations (id, slug, name, network, order_key_sealed, order_public, created_at)
      VALUES (1, 'acme', 'acme', '10.77.0.0/16', '', '', 0)`;
    for (const statement of formerFlows) await sql.unsafe(statement);
    const before = await sql.unsafe(allFlows);
    await (await openPostgres({ url, now: () => now })).close();
    const after: object[] = await sql.unsafe(allFlows);
    expect([...after]).toEqual(before.map((row: object) => ({ ...row, block: expect.anything() })));
    expect(before).toHaveLength(formerFlows.length);
    const indexes =
      await sql`SELECT indexdef FROM pg_indexes WHERE tablename IN ('flows', 'former_flows') ORDER BY 1`;
    expect(indexes.map(({ indexdef }: { indexdef: string }) => indexdef.replace(/^.*btree /, ""))).toEqual([
      "(org_id, day)",
      "(node_id, block, side, peer, address, protocol, port, day)",
    ]);
  });
});

test("a database one release newer is used unchanged; a newer one is refused", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "control.db");
  const open = async () => (await openSqlite({ path, now: () => now, role: "visitor" })).close();
  await open();
  const change = (sql: string) => {
    using database = new Sqlite(path, { strict: true });
    database.run(sql);
  };
  change(`INSERT INTO migrations VALUES (${newestVersion + 1}, 0)`);
  change(`UPDATE meta SET value = '${newestVersion}' WHERE key = 'schema_readable_from'`);
  await open();
  change(`UPDATE meta SET value = '${newestVersion + 1}' WHERE key = 'schema_readable_from'`);
  expect(String(await open().catch((error: unknown) => error))).toContain("knows versions up to");
  expect(formerVersion).toBeLessThan(newestVersion);
});

test("each column that came later says which migration adds it, and each migration has its number beside it", () => {
  const step = (number: number) =>
    schemaStatements(number)
      .slice(schemaStatements(number - 1).length)
      .join("\n");
  const said = readdirSync(directory).flatMap((file) =>
    [...readFileSync(join(directory, file), "utf8").matchAll(/^ +(\w+): since\((\d+),/gm)].map(
      ([, key = "", number]) => ({
        column: key.replace(/[A-Z]/g, (capital) => `_${capital.toLowerCase()}`),
        migration: Number(number),
      }),
    ),
  );
  expect(said.length).toBeGreaterThan(50);
  const isAdded = ({ column, migration }: (typeof said)[number]) =>
    new RegExp(`ADD COLUMN ${column} `).test(step(migration));
  expect(said.filter((each) => !isAdded(each))).toEqual([]);

  const source = readFileSync(join(directory, "../migrations.ts"), "utf8");
  const numbers = [...source.matchAll(/^  \/\/ (\d+)(?:: .*)?\n  \[/gm)].map(([, number]) => Number(number));
  expect(numbers).toEqual(Array.from({ length: newestVersion }, (_, at) => at + 1));
});
