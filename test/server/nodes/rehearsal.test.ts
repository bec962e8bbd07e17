// A server rehearses a rename before it answers: the statements of the first real one have run before, and nothing is stored.

import { expect, setDefaultTimeout, test } from "bun:test";
import { operator } from "../../../src/server/audit/record.ts";
import { patchNode } from "../../../src/server/nodes/nodes.ts";
import { rehearseChange } from "../../../src/server/nodes/rehearsal.ts";
import type { Database, Reader, Transaction } from "../../../src/server/store/database.ts";
import { registerNode } from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

setDefaultTimeout(60_000);

const open = new AbortController().signal;
const tables = ["organizations", "nodes", "certificates", "held_names", "addresses", "events", "authorities"];

const rowsOf = ({ db }: TestServer) =>
  Promise.all(tables.map((each) => db.all(`SELECT * FROM ${each} ORDER BY 1, 2, 3`)));

/** The texts of all statements that run in `work`, and how often it waits for the database: some are sent together. */
async function watch(db: Database, work: (watched: Database) => Promise<unknown>) {
  const texts: string[] = [];
  let [running, waits] = [0, 0];
  const sent = async <T>(sql: string, send: () => Promise<T>): Promise<T> => {
    texts.push(sql);
    if (running++ === 0) waits++;
    // As over a network: the answer comes later than the next statement that does not wait for it.
    return new Promise<void>(setImmediate).then(send).finally(() => running--);
  };
  const noting = <T extends Reader>(reader: T): T => ({
    ...reader,
    all: (sql, params) => sent(sql, () => reader.all(sql, params)),
    get: (sql, params) => sent(sql, () => reader.get(sql, params)),
  });
  const transaction = (tx: Transaction): Transaction => ({
    ...noting(tx),
    run: (sql, params) => sent(sql, () => tx.run(sql, params)),
  });
  await work({
    ...noting(db),
    write: (inside) => db.write((tx) => inside(transaction(tx))),
    writeFor: (concern, inside) => db.writeFor(concern, (tx) => inside(transaction(tx))),
  });
  return { texts, waits };
}

test("a rehearsal runs every statement of a rename, stores nothing and notifies no listener", async () => {
  await using server = await makeTestServer();
  const org = await server.organization("acme");
  const node = await registerNode(server, org, "web");
  const { services } = server.app;
  const before = await rowsOf(server);
  const notified: string[] = [];
  for (const channel of ["organization", "node", "names", "auth"] as const)
    server.db.listen(channel, (payload) => void notified.push(`${channel} ${payload}`));
  const rehearsed = await watch(server.db, (db) => rehearseChange({ ...services, db }, open));
  expect(await rowsOf(server)).toEqual(before);
  expect(notified).toEqual([]);

  const testing = { inTurn: <T>(work: () => Promise<T>) => work(), admitAgain: async () => undefined };
  const renamed = await watch(server.db, (db) =>
    patchNode({ ...services, db, testing }, org, node.id, { name: "renamed" }, operator),
  );
  expect(renamed.texts.length).toBeGreaterThan(15);
  const known = new Set(rehearsed.texts);
  expect(renamed.texts.filter((sql) => !known.has(sql))).toEqual([]);
  // Each wait is a round trip to PostgreSQL.
  expect(renamed.waits).toBeLessThanOrEqual(21);
  expect(notified.length).toBeGreaterThan(0);
});

test("without a node, or after the end of the time, nothing is rehearsed", async () => {
  await using server = await makeTestServer();
  const org = await server.organization("acme");
  const run = async (signal: AbortSignal) =>
    (await watch(server.db, (db) => rehearseChange({ ...server.app.services, db }, signal))).texts;
  expect(await run(open)).toHaveLength(1);
  await registerNode(server, org, "web");
  expect(await run(AbortSignal.abort())).toHaveLength(1);
});

test("a deleted organization's node is not rehearsed", async () => {
  await using server = await makeTestServer();
  const org = await server.organization("acme");
  await registerNode(server, org, "web");
  await server.db.write((tx) => tx.run("UPDATE organizations SET deleted_at = 1 WHERE id = $1", [org.id]));
  await rehearseChange(server.app.services, open);
  expect(await server.db.all("SELECT id FROM events WHERE type = 'node.updated'")).toEqual([]);
});
