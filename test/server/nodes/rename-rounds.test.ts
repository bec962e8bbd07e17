// How often a rename waits for its database, which is far away where PostgreSQL is another machine; and the rehearsal of
// a rename at the start.

import { beforeEach, expect, test } from "bun:test";
import { operator } from "../../../src/server/audit/record.ts";
import { patchNode } from "../../../src/server/nodes/nodes.ts";
import { rehearseWrite } from "../../../src/server/nodes/joining/rehearsal.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import type { Database, Transaction } from "../../../src/server/store/database.ts";
import { registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";
import { untested } from "../../support/untested.ts";

let server: TestServer;
let org: Organization;
let node: RegisteredNode;
useNumbered((made) => ({ server, org } = made));
beforeEach(async () => {
  node = await registerNode(server, org, "web1");
});

/** A database whose answers come a turn later. Statements that are sent before an answer comes share a round trip. */
function farAway(db: Database) {
  let [statements, rounds, waiting] = [0, 0, 0];
  const slow =
    <A extends unknown[], T>(ask: (...words: A) => Promise<T>) =>
    async (...words: A): Promise<T> => {
      statements++;
      if (waiting++ === 0) rounds++;
      try {
        return await ask(...words);
      } finally {
        await new Promise((resolve) => void setImmediate(resolve));
        waiting--;
      }
    };
  const far = (tx: Transaction): Transaction => ({
    ...tx,
    all: slow(tx.all),
    get: slow(tx.get),
    run: slow(tx.run),
  });
  const database: Database = {
    ...db,
    all: slow(db.all),
    get: slow(db.get),
    writeFor: (concerns, work) => db.writeFor(concerns, (tx) => work(far(tx))),
  };
  return { database, counts: () => ({ statements, rounds }) };
}

test("a rename waits for at most 12 answers of its database", async () => {
  const { services } = server.app;
  const { database, counts } = farAway(server.db);
  const changed = await patchNode(
    { ...services, db: database, testing: untested },
    org,
    node.id,
    { name: "web2" },
    operator,
  );
  expect(changed.name).toBe("web2");
  const { statements, rounds } = counts();
  process.stdout.write(`one rename: ${statements} statements in ${rounds} round trips\n`);
  expect(rounds).toBeLessThanOrEqual(12);
});

test("the rehearsal of a rename leaves nothing behind", async () => {
  const { services } = server.app;
  const everything = async () => {
    const tables = ["nodes", "organizations", "certificates", "held_names", "events"];
    return Promise.all(tables.map((table) => server.db.all(`SELECT * FROM ${table} ORDER BY 1`)));
  };
  const before = await everything();
  const notices: unknown[] = [];
  const { database, counts } = farAway({ ...server.db, dialect: "postgres" });
  server.db.listen("node", (payload) => void notices.push(payload));
  const said: unknown[] = [];
  const log = { debug: (...words: unknown[]) => void said.push(words) };
  await rehearseWrite({ ...services, db: database, log });
  expect(said).toEqual([]);
  expect(counts().statements).toBeGreaterThan(15);
  expect(await everything()).toEqual(before);
  expect(notices).toEqual([]);
});

test("a server whose first write cannot be rehearsed starts nevertheless", async () => {
  const { services } = server.app;
  const said: unknown[] = [];
  const log = { debug: (...words: unknown[]) => void said.push(words) };
  const db: Database = {
    ...server.db,
    dialect: "postgres",
    writeFor: () => Promise.reject(new Error("the disk is full")),
  };
  await rehearseWrite({ ...services, db, log });
  expect(said).toEqual([["The first write was not rehearsed", { reason: "the disk is full" }]]);
});
