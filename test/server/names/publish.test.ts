// Publishing the change of one node costs the same however many nodes the organization has.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { publishLateNames, publishNames } from "../../../src/server/names/publish.ts";
import type { Database, Params, Transaction } from "../../../src/server/store/database.ts";
import { queryNumber } from "../../../src/server/store/table.ts";
import { describePostgres, openedAt, startMigrated } from "../../support/postgres.ts";
import { makeTestServer } from "../../support/server.ts";

const count = 3000;
const unpublished = "SELECT count(*) AS n FROM nodes WHERE named_as <> name || ' ' || ip || '  []'";

/** Adds active nodes that were never published, the first of them with this id. */
async function addNodes(db: Database, orgId: number, first: number): Promise<void> {
  await db.writeFor({ org: orgId }, (tx) =>
    tx.run(
      `WITH RECURSIVE n (i) AS (SELECT $2 + 0 UNION ALL SELECT i + 1 FROM n WHERE i < $3 + 0)
       INSERT INTO nodes (id, org_id, name, ip, state, created_at)
       SELECT i, $1, 'node-' || i, '10.0.0.' || i, 'active', 1 FROM n`,
      [orgId, first, first + count - 1],
    ),
  );
}

describePostgres("names on PostgreSQL", () => {
  test("reads and writes only the changed node, by its id", async () => {
    await using cluster = await startMigrated();
    const url = await cluster.database();
    await using server = await makeTestServer({ open: openedAt(url) });
    const { db } = server;
    const { id: orgId } = await server.organization("acme");
    await addNodes(db, orgId, 1000);
    await publishLateNames({ db });
    await db.all("ANALYZE");
    const asked: { sql: string; params: Params }[] = [];
    const note = (sql: string, params: Params = []) => void asked.push({ sql, params });
    const plans = await db.writeFor({ org: orgId }, async (tx) => {
      await tx.run("UPDATE nodes SET name = 'renamed' WHERE id = 2500");
      const noting: Transaction = {
        ...tx,
        all: (sql, params) => (note(sql, params), tx.all(sql, params)),
        run: (sql, params) => (note(sql, params), tx.run(sql, params)),
      };
      await publishNames(noting, orgId, [2500]);
      const ofNodes = asked.filter(({ sql }) => /FROM nodes|UPDATE nodes/.test(sql));
      return Promise.all(ofNodes.map(({ sql, params }) => tx.all(`EXPLAIN ${sql}`, params)));
    });
    expect(plans.length).toBe(2);
    for (const plan of plans) expect(JSON.stringify(plan)).toContain("Index Cond: (id = ");
    expect(await queryNumber(db, unpublished)).toBe(0);
  }, 60_000);
});

test("late names of many nodes are published, a thousand with each version", async () => {
  await using server = await makeTestServer();
  const { id: orgId } = await server.organization("acme");
  await addNodes(server.db, orgId, 1000);
  await publishLateNames(server.app.services);
  expect(await queryNumber(server.db, unpublished)).toBe(0);
  const sizes = await server.db.all("SELECT count(*) AS n FROM nodes GROUP BY names_version ORDER BY 1");
  expect(sizes.map(({ n }) => v.parse(v.number(), n))).toEqual([1000, 1000, 1000]);
});
