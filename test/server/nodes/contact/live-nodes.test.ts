// What the server keeps of organizations and nodes that check in.

import { expect, test } from "bun:test";
import { makeLive } from "../../../../src/server/nodes/contact/live-nodes.ts";
import type { Database } from "../../../../src/server/store/database.ts";
import { raiseConfigVersion } from "../../../../src/server/store/versions.ts";
import { registerNode } from "../../../support/nodes.ts";
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

test("a confirmation outdates the node on other servers, not where it came, and wakes no poll", async () => {
  await using server = await makeTestServer();
  const org = await server.organization("acme");
  const { id } = await registerNode(server, org, "web1");
  const { ages, changes } = server.app.services;
  const [here, there] = [makeLive(server.db, ages), makeLive(server.db, ages)];
  const known = await here.node(org.id, id);
  await there.node(org.id, id);
  const poll = changes.open(org.id, id);
  await here.confirm(known, 7);
  expect(here.knownNode(org.id, id)).toMatchObject({ id, confirmed: 7 });
  expect(there.knownNode(org.id, id)).toBeUndefined();
  expect(await there.node(org.id, id)).toMatchObject({ id, confirmed: 7 });
  expect(await poll.wait(0)).toBe(false);
  poll.close();
});

test("what nodes confirm at once shares a write, in which the last version of a node counts", async () => {
  await using server = await makeTestServer();
  const org = await server.organization("acme");
  let writes = 0;
  const writeFor: Database["writeFor"] = (concern, work) => {
    writes++;
    return server.db.writeFor(concern, work);
  };
  const live = makeLive({ ...server.db, writeFor }, server.app.services.ages);
  const made = [await registerNode(server, org, "web1"), await registerNode(server, org, "web2")];
  const [web1, web2] = await Promise.all(made.map(({ id }) => live.node(org.id, id)));
  if (web1 === undefined || web2 === undefined) throw new Error("two nodes were made");
  await Promise.all([live.confirm(web1, 7), live.confirm(web2, 7), live.confirm(web1, 8)]);
  expect(writes).toBe(1);
  const stored = await server.db.all("SELECT confirmed_config_version AS n FROM nodes ORDER BY id");
  expect([stored, web1.confirmed, web2.confirmed]).toEqual([[{ n: 8 }, { n: 7 }], 8, 7]);
  await live.confirm(web2, 8);
  expect(writes).toBe(2);
});
