// Check-ins while the database is away, just after changes that outdated what the server remembers.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { AppError } from "../../../src/errors.ts";
import type { Database } from "../../../src/server/store/database.ts";
import { openSqlite } from "../../../src/server/store/sqlite.ts";
import { confirm, registerNode } from "../../support/nodes.ts";
import { makeTestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

test("known nodes check in; an unknown node and a user get 503; afterwards a revocation is told", async () => {
  using directory = temporaryDirectory();
  let isAway = false;
  const guarded =
    <A extends unknown[], T>(act: (...args: A) => Promise<T>) =>
    async (...args: A): Promise<T> => {
      if (isAway) throw new AppError("storage_unavailable", "away", { retryAfter: 5 });
      return act(...args);
    };
  const open = async (now: () => number) => {
    const real = await openSqlite({ path: join(directory.path, "control.db"), now, role: "visitor" });
    const db: Database = {
      ...real,
      all: guarded(real.all),
      get: guarded(real.get),
      write: (work) => guarded(() => real.write(work))(),
      writeFor: (concern, work) => guarded(() => real.writeFor(concern, work))(),
    };
    return { db, dispose: () => undefined };
  };
  await using server = await makeTestServer({ open });
  const org = await server.organization("acme");
  const staff = await server.person("staff@example.org", { isStaff: true });
  const node = await registerNode(server, org, "node");
  const unseen = await registerNode(server, org, "unseen");
  await confirm(node);
  // Everything that the server remembers is outdated.
  await server.db.write(async (tx) => {
    await tx.notify("auth", `organization ${org.id}`);
    await tx.notify("node", `${org.id}/${node.id}`);
    await tx.notify("organization", String(org.id));
  });
  isAway = true;
  for (let turn = 0; turn < 3; turn++) expect((await node.checkin()).status).toBe(200);
  expect((await unseen.checkin()).status).toBe(503);
  expect((await server.send("GET", "/api/user/", { token: staff })).status).toBe(503);
  expect((await node.checkin({}, { address: "192.0.2.99" })).status).toBe(200);
  isAway = false;
  await server.db.write(async (tx) => {
    await tx.run("UPDATE nodes SET state = 'revoked', revoke_reason = 'gone' WHERE id = $1", [node.id]);
    await tx.notify("node", `${org.id}/${node.id}`);
  });
  // For a second at most, the database is not asked.
  while ((await node.checkin()).status !== 403) await Bun.sleep(50);
});
