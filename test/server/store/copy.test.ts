// Copies of whole databases: no row is left out, none comes twice.

import { SQL } from "bun";
import { expect, test } from "bun:test";
import { join } from "node:path";
import { copyTables } from "../../../src/server/store/copy.ts";
import { openPostgres } from "../../../src/server/store/postgres/postgres.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import { describePostgres, useMigrated } from "../../support/postgres.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

describePostgres("from PostgreSQL", () => {
  const createDatabase = useMigrated();

  test("many flows of one node and day arrive, each once", async () => {
    using directory = temporaryDirectory();
    const url = await createDatabase();
    await using sql = new SQL(url);
    await sql`INSERT INTO organizations (id, slug, name, network, order_key_sealed, order_public, created_at)
      VALUES (1, 'acme', 'acme', '10.77.0.0/16', '', '', 0)`;
    // More than the pages of a copy, in no order.
    await sql`INSERT INTO flows SELECT 1, 20000, 0, 0, '10.77.0.' || i % 200, 'tcp', i * 7919 % 60000, 1, 1, 1, 0, 0, 0, '', 2000
      FROM generate_series(1, 30000) i`;
    const from = await openPostgres({ url, now: Date.now });
    const to = await openSqlite({ path: join(directory.path, "copy.db"), now: Date.now, role: "visitor" });
    try {
      await to.write((tx) => copyTables(from, tx));
      const all = "SELECT count(*) AS n, sum(port) AS ports FROM flows";
      expect(await to.get(all)).toMatchObject({ n: 30_000 });
      expect(Number((await to.get(all))?.["ports"])).toBe(Number((await from.get(all))?.["ports"]));
    } finally {
      await to.close();
      await from.close();
    }
  });
});
