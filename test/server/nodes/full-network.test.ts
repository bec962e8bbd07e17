// The next free address costs the same however many are taken: equally many statements, each by an index.

import { expect, test } from "bun:test";
import {
  chooseAddress,
  freeAddresses,
  takeAddress,
  type Networks,
} from "../../../src/server/allocation/address-pool.ts";
import type { Params, Transaction } from "../../../src/server/store/database.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

const taken = 65_000;

/** An organization whose first `count` addresses are taken. */
async function organizationWith(server: TestServer, slug: string, count: number): Promise<Networks> {
  const { id, network } = await server.organization(slug, count === 0 ? "10.78.0.0/16" : "10.77.0.0/16");
  await server.db.write(async (tx) => {
    const node = await tx.get(
      "INSERT INTO nodes (org_id, name, ip, state, created_at) VALUES ($1, 'all', '', 'pending', 0) RETURNING id",
      [id],
    );
    await tx.run(
      `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $3)
       INSERT INTO addresses (org_id, host, node_id) SELECT $1, i, $2 FROM n WHERE i <= $3`,
      [id, Number(node?.["id"]), count],
    );
    await tx.run("UPDATE organizations SET next_host = $2 WHERE id = $1", [id, count + 1]);
  });
  return { id, network, network6: null };
}

type Asked = { sql: string; params: Params }[];

/** Records the statements that the database gets. */
function noting(tx: Transaction, asked: Asked): Transaction {
  return {
    ...tx,
    get: (sql, params = []) => (asked.push({ sql, params }), tx.get(sql, params)),
    all: (sql, params = []) => (asked.push({ sql, params }), tx.all(sql, params)),
    run: (sql, params = []) => (asked.push({ sql, params }), tx.run(sql, params)),
  };
}

test("an empty and a full network need the same statements", async () => {
  await using server = await makeTestServer();
  const [empty, full] = [
    await organizationWith(server, "empty", 0),
    await organizationWith(server, "full", taken),
  ];
  const next = async (org: Networks) => {
    const asked: Asked = [];
    const { ip } = await server.db.write((tx) => chooseAddress(noting(tx, asked), org, undefined));
    return { ip, asked };
  };
  const [first, last] = [await next(empty), await next(full)];
  expect([first.ip, last.ip]).toEqual(["10.78.0.1", "10.77.253.233"]);
  expect(last.asked.map(({ sql }) => sql)).toEqual(first.asked.map(({ sql }) => sql));
  if (server.db.dialect === "sqlite") {
    for (const { sql, params } of last.asked) {
      const plan = await server.db.all(`EXPLAIN QUERY PLAN ${sql}`, params);
      expect(`${sql}: ${plan.map((row) => String(row["detail"])).join()}`).toMatch(/: SEARCH [^,]*$/);
    }
  }

  // A freed address between taken ones is the next.
  await server.db.write(async (tx) => {
    const made = await tx.get(
      "INSERT INTO nodes (org_id, name, ip, state, created_at) VALUES ($1, 'gone', '', 'pending', 0) RETURNING id",
      [full.id],
    );
    const id = Number(made?.["id"]);
    await tx.run("DELETE FROM addresses WHERE org_id = $1 AND host = 30000", [full.id]);
    await takeAddress(tx, full.id, { host: 30_000, ip: "10.77.117.48" }, id, 0);
    await freeAddresses(tx, full.id, id);
  });
  expect((await next(full)).ip).toBe("10.77.117.48");
});
