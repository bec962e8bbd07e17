// The list of a webhook's deliveries from its newest one back.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { deliveriesBeforeSql } from "../../../src/server/webhooks/webhooks.ts";
import { ListedDelivery } from "../../../src/api/webhooks/webhooks.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

const behindAll = 999_999_999_999_999;

/** Webhooks of the organization, each with so many deliveries, the first with the oldest. */
async function withDeliveries({ db }: TestServer, orgId: number, counts: readonly number[]) {
  return db.write(async (tx) => {
    const ids: number[] = [];
    for (const count of counts) {
      const row = await tx.get(
        `INSERT INTO webhooks (org_id, url, events, secret_sealed, created_at, created_by, seen_event_id)
         VALUES ($1, 'http://127.0.0.1:9/', '["*"]', '', 0, '', ${behindAll}) RETURNING id`,
        [orgId],
      );
      const id = Number(row?.["id"]);
      await tx.run(
        `INSERT INTO deliveries (webhook_id, event_id, attempts, status, delivered_at, created_at)
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
         SELECT $1, (SELECT max(id) FROM events), i, 200, 1, 1 FROM n`,
        [id, count],
      );
      ids.push(id);
    }
    return ids;
  });
}

test("deliveries are read from the newest back, page by page, and each once", async () => {
  await using server = await makeTestServer();
  const acme = await server.organization("acme");
  const token = await server.person("ada@example.org");
  await server.join(acme, "ada@example.org", "admin");
  const [first = 0, second = 0] = await withDeliveries(server, acme.id, [5, 3]);
  const read = async (webhook: number, query: string) => {
    const path = `/api/org/acme/webhooks/${webhook}/deliveries/${query}`;
    const { status, json, headers, text } = await server.send("GET", path, { token });
    expect(`${status} ${text}`).toStartWith("200");
    const numbers = v.parse(v.array(ListedDelivery), json).map(({ attempts }) => attempts);
    const next = /<[^>]*(\?before[^>]*)>; rel="next"/.exec(headers.get("Link") ?? "")?.[1];
    return { numbers, next, total: headers.get("X-Total-Count") };
  };
  const pages: (readonly number[])[] = [];
  for (let next: string | undefined = `?before=${behindAll}&limit=2`; next !== undefined;) {
    const page = await read(first, next);
    expect(page.total).toBeNull();
    pages.push(page.numbers);
    next = page.next;
  }
  expect(pages).toEqual([[5, 4], [3, 2], [1]]);
  expect((await read(second, `?before=${behindAll}`)).numbers).toEqual([3, 2, 1]);
  expect((await read(first, "?before=1")).numbers).toEqual([]);
  // As before: the oldest first, counted.
  expect(await read(first, "?page=2&page_size=2")).toEqual({ numbers: [3, 4], next: undefined, total: "5" });
  expect((await read(first, "")).numbers).toEqual([1, 2, 3, 4, 5]);
});

test("before and limit have bounds, belong together, and exclude pages", async () => {
  await using server = await makeTestServer();
  const acme = await server.organization("acme");
  const token = await server.person("ada@example.org");
  await server.join(acme, "ada@example.org", "admin");
  const [webhook] = await withDeliveries(server, acme.id, [1]);
  const refusal = async (query: string) => {
    const path = `/api/org/acme/webhooks/${webhook}/deliveries/?${query}`;
    return (await server.send("GET", path, { token })).text;
  };
  expect(await refusal("before=0")).toContain("At least 1.");
  expect(await refusal("before=9&limit=1001")).toContain("At most 1000.");
  expect(await refusal("before=9&limit=0")).toContain("At least 1.");
  expect(await refusal("limit=9")).toContain("Give limit with before only.");
  for (const page of ["page=2", "page=1", "page_size=5", "page=1&page_size=5"])
    expect(await refusal(`before=9&${page}`)).toContain("Give before and limit, or page and page_size");
});

test("the newest deliveries are found by the index, without those of other webhooks", async () => {
  await using server = await makeTestServer();
  const { db } = server;
  const { id: orgId } = await server.organization("acme");
  const [first = 0] = await withDeliveries(server, orgId, [5000, 5000]);
  await db.all("ANALYZE");
  const isSqlite = db.dialect === "sqlite";
  const explained = `EXPLAIN ${isSqlite ? "QUERY PLAN " : ""}${deliveriesBeforeSql}`;
  const plan = JSON.stringify(await db.all(explained, [first, behindAll, 200]));
  expect(plan).toContain(
    isSqlite
      ? "SEARCH deliveries USING INDEX deliveries_webhook (webhook_id=? AND id<?)"
      : "Index Scan Backward using deliveries_webhook on deliveries",
  );
  expect(plan).not.toMatch(/SCAN deliveries|TEMP B-TREE|Seq Scan on deliveries|Sort/);
});
