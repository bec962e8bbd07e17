// What `agent admin restore` does with what goes on by itself afterwards: updates in rings, and the ends of nodes whose users have to
// prove something.

import { Database as Sqlite } from "bun:sqlite";
import { expect, test } from "bun:test";
import { join } from "node:path";
import { makeLog } from "../../../src/base/log.ts";
import { realSystem } from "../../../src/base/system.ts";
import { endUnproven } from "../../../src/server/oidc/unproven-users.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import { startHostileProvider } from "../../support/hostile-provider.ts";
import { json, must, place, populate, stop, useControlPlane } from "../../support/restoring.ts";

useControlPlane();

/** A database that no server uses. */
function inDatabase<T>(work: (sqlite: Sqlite) => T): T {
  using sqlite = new Sqlite(join(place.data, "control.db"));
  return work(sqlite);
}
const rows = (sql: string): unknown[] => inDatabase((sqlite) => sqlite.query(sql).all());

test("a rollout ends, which may have stopped since the backup; one that is taken back goes on", async () => {
  const { a, b } = await populate();
  await stop();
  inDatabase((sqlite) => {
    for (const [id, node, state, of] of [
      [1, a, "running", "told"],
      [2, b, "returning", "returning"],
    ] as const) {
      sqlite.run(
        `INSERT INTO rollouts (id, org_id, engine, groups, hours, watch_s, state, ring, rings, since, created_at)
         VALUES (?, 1, '1.11.1', '[]', '[]', 60, ?, 1, 2, 1, ?)`,
        [id, state, id],
      );
      sqlite.run("INSERT INTO rollout_nodes (rollout_id, node_id, ring, state, at) VALUES (?, ?, 1, ?, 1)", [
        id,
        node.node.id,
        of,
      ]);
      sqlite.run("UPDATE nodes SET update_order = ? WHERE id = ?", [`{"order":${2 * id}}`, node.node.id]);
      sqlite.run("INSERT INTO owner_proofs (node_id, proven_at, told_at) VALUES (?, 1, 2)", [node.node.id]);
    }
  });
  await must(`backup ${place.backup}`);
  await json(`restore ${place.backup} --replace`);
  expect(rows("SELECT state, reason, ended_at IS NULL AS is_open FROM rollouts ORDER BY id")).toEqual([
    { state: "stopped", reason: "The control plane was restored from a backup", is_open: 0 },
    { state: "returning", reason: "", is_open: 1 },
  ]);
  expect(rows("SELECT name FROM nodes WHERE update_order IS NOT NULL")).toEqual([{ name: "b" }]);
  expect(rows("SELECT subject FROM events WHERE type = 'rollout.stopped'")).toEqual([
    { subject: "rollout/1" },
  ]);
  // A confirmation since the backup is lost: nobody is cut off for that.
  expect(rows("SELECT told_at FROM owner_proofs WHERE told_at IS NOT NULL")).toEqual([]);
  await must("audit verify");
}, 120_000);

test("users whom a provider vouched for have a day to sign in again: the restore deletes its tokens", async () => {
  await using provider = await startHostileProvider();
  const { a } = await populate();
  await must(`oidc create Staff ${provider.issuer} --client-id agent --users create`);
  await stop();
  const day = 86_400_000;
  inDatabase((sqlite) => {
    sqlite.run(
      "INSERT INTO users (id, email, password_hash, created_at, last_login_at) VALUES (9, 'carl@example.org', '', 1, ?)",
      [Date.now() - 3 * day],
    );
    sqlite.run("UPDATE nodes SET owner_id = 9 WHERE id = ?", [a.node.id]);
    sqlite.run("UPDATE organizations SET revoke_unproven_nodes = 1, revoke_unproven_from = 1");
    sqlite.run(
      `INSERT INTO provider_grants (provider_id, user_id, subject, token_sealed, next_at)
       SELECT id, 9, 'carl', '', 1 FROM identity_providers`,
    );
    // The server ran until now.
    sqlite.run("INSERT INTO meta (key, value) VALUES ('unproven_watch', ?)", [String(Date.now())]);
  });
  await must(`backup ${place.backup}`);
  await json(`restore ${place.backup} --replace`);
  const path = join(place.data, "control.db");
  const activeAt = async (now: number) => {
    const db = await openSqlite({ path, now: () => now, role: "visitor" });
    const log = makeLog({ verbose: false, write: () => undefined, now: () => now, stamped: false });
    const exchange = { discover: () => expect.unreachable() };
    await endUnproven({ db, system: { ...realSystem(), now: () => now }, log, exchange });
    await db.close();
    return rows("SELECT name FROM nodes WHERE state = 'active' ORDER BY name");
  };
  expect(await activeAt(Date.now())).toEqual([{ name: "a" }, { name: "b" }]);
  inDatabase((sqlite) =>
    sqlite.run("UPDATE meta SET value = ? WHERE key = 'unproven_watch'", [String(Date.now() + day)]),
  );
  expect(await activeAt(Date.now() + day + 1000)).toEqual([{ name: "b" }]);
}, 120_000);
