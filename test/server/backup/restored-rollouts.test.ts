// What `agent admin restore` does with updates in rings, and with notices that users have to confirm their nodes.

import { Database as Sqlite } from "bun:sqlite";
import { expect, test } from "bun:test";
import { join } from "node:path";
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
