// Check-ins while the database is away, just after changes that outdated what the server remembers.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { AppError } from "../../../src/base/errors.ts";
import type { Database } from "../../../src/server/store/database.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import { realSystem } from "../../../src/base/system.ts";
import { raiseConfigVersion } from "../../../src/server/store/versions.ts";
import { checkinOf, confirm, registerNode } from "../../support/nodes.ts";
import { makeTestServer, type TestServerOptions } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { until } from "../../support/until.ts";

/** A server whose database is away while `isAway`. */
async function makeAwayServer(directory: string, options: TestServerOptions = {}) {
  const away = { isAway: false, refused: () => undefined as void };
  const guarded =
    <A extends unknown[], T>(act: (...args: A) => Promise<T>) =>
    async (...args: A): Promise<T> => {
      if (away.isAway) {
        away.refused();
        throw new AppError("storage_unavailable", "away", { retryAfter: 5 });
      }
      return act(...args);
    };
  const open = async (now: () => number) => {
    const real = await openSqlite({ path: join(directory, "control.db"), now, role: "visitor" });
    const db: Database = {
      ...real,
      all: guarded(real.all),
      get: guarded(real.get),
      write: (work) => guarded(() => real.write(work))(),
      writeFor: (concern, work) => guarded(() => real.writeFor(concern, work))(),
    };
    return { db, dispose: () => undefined };
  };
  return { away, server: await makeTestServer({ open, ...options }) };
}

test("known nodes check in; an unknown node and a user get 503; afterwards a revocation is told", async () => {
  using directory = temporaryDirectory();
  const made = await makeAwayServer(directory.path);
  const { away } = made;
  await using server = made.server;
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
  away.isAway = true;
  for (let turn = 0; turn < 3; turn++) expect((await node.checkin()).status).toBe(200);
  expect((await unseen.checkin()).status).toBe(503);
  expect((await server.send("GET", "/api/user/", { token: staff })).status).toBe(503);
  expect((await node.checkin({}, { address: "192.0.2.99" })).status).toBe(200);
  away.isAway = false;
  await server.db.write(async (tx) => {
    await tx.run("UPDATE nodes SET state = 'revoked', revoke_reason = 'gone' WHERE id = $1", [node.id]);
    await tx.notify("node", `${org.id}/${node.id}`);
  });
  // For a second at most, the database is not asked.
  while ((await node.checkin()).status !== 403) await Bun.sleep(50);
});

test("a poll that the database's absence met when it was woken learns of the change without another wake-up", async () => {
  using directory = temporaryDirectory();
  const { sleep } = realSystem();
  // A poll never ends by itself.
  const endless = (ms: number, signal?: AbortSignal) =>
    ms <= 10_000
      ? sleep(ms, signal)
      : new Promise<void>((_, reject) =>
          signal?.addEventListener("abort", () => reject(new Error("aborted"))),
        );
  const made = await makeAwayServer(directory.path, { network: { sleep: endless } });
  const { away } = made;
  await using server = made.server;
  const org = await server.organization("acme");
  const node = await registerNode(server, org, "node");
  const { config_version } = checkinOf(await node.checkin());
  await node.checkin({ config_version });
  const poll = node.checkin({ config_version }, { wait: 55 });
  await until(() => server.app.services.changes.isHeld(org.id, node.id));
  let reads = 0;
  await server.db.write(async (tx) => {
    await raiseConfigVersion(tx, org.id);
    away.isAway = true;
    away.refused = () => void reads++;
  });
  // The woken poll has asked, and waits again.
  await until(() => reads > 0);
  away.isAway = false;
  expect(checkinOf(await poll)).toMatchObject({ config_version: config_version + 1, config_changed: true });
}, 60_000);
