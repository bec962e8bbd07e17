// Planning on an organization of thousands of nodes reads them in pages, and other requests are answered between these.

import { expect, test } from "bun:test";
import { stateStamp } from "../../../src/server/policy/state-stamp.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { applyPolicy } from "../../../src/server/policy-files/apply.ts";
import { planChanges } from "../../../src/server/policy-files/plan.ts";
import type { Database, Params, Reader } from "../../../src/server/store/database.ts";
import { registrationToken } from "../../support/nodes.ts";
import { makeTestServer, onPostgres } from "../../support/server.ts";

const nodes = 2500;

test("planning reads each node once, and pauses after each page; memberships by token are known", async () => {
  await using server = await makeTestServer();
  const org = await server.organization("acme");
  await registrationToken(server, org, { groups: ["db"] });
  await server.db.write(async (tx) => {
    await tx.run(
      `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${nodes})
       INSERT INTO nodes (org_id, name, ip, state, groups, registered_with, created_at)
       SELECT $1, 'node-' || i, '10.77.' || (1 + i / 250) || '.' || (i % 250), 'active', '["db"]',
         (SELECT max(id) FROM registration_tokens), 0 FROM n`,
      [org.id],
    );
  });

  let round = 0;
  let isOver = false;
  const turn = () => {
    round++;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  const large: { rows: number; round: number }[] = [];
  const reader: Reader = {
    get: server.db.get,
    async all(sql, params) {
      const rows = await server.db.all(sql, params);
      if (rows.length >= 100) large.push({ rows: rows.length, round });
      return rows;
    },
  };
  const { changes } = await planChanges(
    reader,
    org.id,
    { policy: "groups: {db: {members: []}}", prune: true },
    { mayName: true },
    server.clock.ms,
  );
  isOver = true;

  // The file takes no node out of the group: all are in it by their token.
  expect(changes.nodes).toEqual([]);
  expect(large.map(({ rows }) => rows)).toEqual([500, 500, 500, 500, 500]);
  expect(new Set(large.map((page) => page.round)).size).toBe(large.length);
}, 60_000);

test("applying a file of many rules pauses in its transaction", async () => {
  await using server = await makeTestServer();
  const org = await server.organization("acme");
  const { services } = server.app;
  let pauses = 0;
  const writeFor: Database["writeFor"] = (concern, work) =>
    services.db.writeFor(concern, (tx) => work({ ...tx, pause: () => (pauses++, tx.pause()) }));
  const rules = Array.from({ length: 200 }, (_, at) => `  - {ports: ${at + 1}, peer: any, target: any}\n`);
  const request = { policy: `rules:\n${rules.join("")}`, prune: true };
  const room = { requireRoom: () => Promise.resolve() };
  await applyPolicy({ ...services, db: { ...services.db, writeFor } }, org, request, operator, room);
  expect(pauses).toBeGreaterThanOrEqual(8);
});

test("the moment of an organization counts its lasting nodes in indexes: their rows are wide", async () => {
  await using server = await makeTestServer();
  const { db } = server;
  const { id } = await server.organization("acme");
  const add = (name: string, more: string) =>
    db.write((tx) =>
      tx.run(
        `INSERT INTO nodes (org_id, name, ip, state, created_at, ephemeral_silence_s, watched_from)
         VALUES ($1, $2, $2, 'active', 0, ${more})`,
        [id, name],
      ),
    );
  await add("db", "NULL, NULL");
  const before = await stateStamp(db, id);
  await add("job", "600, 0");
  expect(await stateStamp(db, id)).toBe(before);
  await add("web", "NULL, NULL");
  const after = await stateStamp(db, id);
  expect(after).not.toBe(before);
  await db.write((tx) => tx.run("UPDATE nodes SET state = 'revoked' WHERE name = 'db'"));
  expect(await stateStamp(db, id)).not.toBe(after);

  if (onPostgres) return;
  let asked: { sql: string; params: Params } | undefined;
  const get: Reader["get"] = (sql, params = []) => ((asked = { sql, params }), db.get(sql, params));
  await stateStamp({ ...db, get }, id);
  const plan = await db.all(`EXPLAIN QUERY PLAN ${asked?.sql}`, asked?.params);
  const ofNodes = plan.map(({ detail }) => String(detail)).filter((each) => each.includes(" nodes "));
  // The last one ends at the first row.
  expect(ofNodes).toEqual([
    expect.stringContaining("USING COVERING INDEX"),
    expect.stringContaining("USING INDEX nodes_ephemeral"),
    expect.stringContaining("USING INDEX nodes_listed"),
  ]);
});
