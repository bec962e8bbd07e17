// What becomes due when nodes confirm a version is looked for once for many confirmations.

import { expect, test } from "bun:test";
import { runDueUpkeep, shareRuns } from "../../../src/server/nodes/lifecycle/upkeep.ts";
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
  const runUpkeep = shareRuns((orgId) => runDueUpkeep({ db: { ...db, all }, system }, orgId));
  await Promise.all(Array.from({ length: 1000 }, () => runUpkeep(org.id)));
  expect(runs).toBe(2);
  const first = runUpkeep(org.id);
  const begunBefore = runs;
  await Promise.all([first, runUpkeep(org.id)]);
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
  const runUpkeep = shareRuns((orgId) => runDueUpkeep({ db: { ...db, all }, system }, orgId));
  expect(await Promise.allSettled([runUpkeep(org.id), runUpkeep(org.id)])).toMatchObject([
    { status: "rejected" },
    { status: "rejected" },
  ]);
  isBroken = false;
  await runUpkeep(org.id);
});
