// What the server keeps of organizations and nodes that check in.

import { expect, test } from "bun:test";
import { makeLive } from "../../../../src/server/nodes/contact/live-nodes.ts";
import type { Database } from "../../../../src/server/store/database.ts";
import { raiseConfigVersion } from "../../../../src/server/store/versions.ts";
import { makeTestServer } from "../../../support/server.ts";

test("a thousand polls that are woken together read the version once, and never one from before a change", async () => {
  await using server = await makeTestServer();
  const org = await server.organization("acme");
  const { db } = server;
  let reads = 0;
  let late: Promise<void> | undefined;
  let answered = Promise.withResolvers<void>();
  const get: Database["get"] = async (sql, params) => {
    reads++;
    const found = await db.get(sql, params);
    answered.resolve();
    await late;
    return found;
  };
  const live = makeLive({ ...db, get }, server.app.services.ages);
  const ask = () => Promise.all(Array.from({ length: 1000 }, () => live.version(org.id)));
  expect(new Set(await ask())).toEqual(new Set([1]));
  expect(reads).toBe(1);
  await db.writeFor({ org: org.id }, (tx) => raiseConfigVersion(tx, org.id));
  const slow = Promise.withResolvers<void>();
  late = slow.promise;
  answered = Promise.withResolvers<void>();
  const before = ask();
  expect(reads).toBe(2);
  await answered.promise;
  await db.writeFor({ org: org.id }, (tx) => raiseConfigVersion(tx, org.id));
  const after = ask();
  expect(reads).toBe(3);
  slow.resolve();
  expect(new Set(await before)).toEqual(new Set([2]));
  expect(new Set(await after)).toEqual(new Set([3]));
  expect(new Set(await ask())).toEqual(new Set([3]));
  expect(reads).toBe(3);
});
