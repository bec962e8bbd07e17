// How often a rename waits for the database: each wait is a round trip to PostgreSQL.

import { expect, setDefaultTimeout, test } from "bun:test";
import { operator } from "../../../src/server/audit/record.ts";
import { patchNode } from "../../../src/server/nodes/nodes.ts";
import type { Database, Reader, Transaction } from "../../../src/server/store/database.ts";
import { registerNode } from "../../support/nodes.ts";
import { makeTestServer } from "../../support/server.ts";

setDefaultTimeout(60_000);

/** How often `work` waits for the database: some statements are sent together. */
async function countWaits(db: Database, work: (watched: Database) => Promise<unknown>) {
  let [running, waits] = [0, 0];
  const sent = async <T>(send: () => Promise<T>): Promise<T> => {
    if (running++ === 0) waits++;
    // As over a network: the answer comes later than the next statement that does not wait for it.
    return new Promise<void>(setImmediate).then(send).finally(() => running--);
  };
  const noting = <T extends Reader>(reader: T): T => ({
    ...reader,
    all: (sql, params) => sent(() => reader.all(sql, params)),
    get: (sql, params) => sent(() => reader.get(sql, params)),
  });
  const transaction = (tx: Transaction): Transaction => ({
    ...noting(tx),
    run: (sql, params) => sent(() => tx.run(sql, params)),
  });
  await work({
    ...noting(db),
    write: (inside) => db.write((tx) => inside(transaction(tx))),
    writeFor: (concern, inside) => db.writeFor(concern, (tx) => inside(transaction(tx))),
  });
  return waits;
}

test("a rename waits for the database at most 21 times", async () => {
  await using server = await makeTestServer();
  const org = await server.organization("acme");
  const node = await registerNode(server, org, "web");
  const { services } = server.app;
  const testing = { inTurn: <T>(work: () => Promise<T>) => work(), admitAgain: async () => undefined };
  const waits = await countWaits(server.db, (db) =>
    patchNode({ ...services, db, testing }, org, node.id, { name: "renamed" }, operator),
  );
  expect(waits).toBeGreaterThan(0);
  expect(waits).toBeLessThanOrEqual(21);
});
