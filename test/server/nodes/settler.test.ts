// What becomes due when nodes confirm a version is looked for once for many confirmations.

import { expect, test } from "bun:test";
import { makeSettler } from "../../../src/server/nodes/lifecycle/upkeep.ts";
import { makeTestServer } from "../../support/server.ts";

test("a thousand confirmations at once are settled by two runs, and each caller waits for one that began after it", async () => {
  await using server = await makeTestServer();
  const org = await server.organization("acme");
  const { db, system } = server.app.services;
  let runs = 0;
  const all: typeof db.all = async (sql, params) => {
    if (sql.startsWith("SELECT DISTINCT c.org_id")) runs++;
    await Bun.sleep(1);
    return db.all(sql, params);
  };
  const settle = makeSettler({ db: { ...db, all }, system });
  await Promise.all(Array.from({ length: 1000 }, () => settle(org.id)));
  expect(runs).toBe(2);
  const first = settle(org.id);
  const begunBefore = runs;
  await Promise.all([first, settle(org.id)]);
  expect([begunBefore, runs]).toEqual([3, 4]);
});

test("a run that fails is told to its callers, and the next one works", async () => {
  await using server = await makeTestServer();
  const org = await server.organization("acme");
  const { db, system } = server.app.services;
  let isBroken = true;
  const all: typeof db.all = async (sql, params) => {
    if (isBroken) throw new Error("broken");
    return db.all(sql, params);
  };
  const settle = makeSettler({ db: { ...db, all }, system });
  expect(await Promise.allSettled([settle(org.id), settle(org.id)])).toMatchObject([
    { status: "rejected" },
    { status: "rejected" },
  ]);
  isBroken = false;
  await settle(org.id);
});
