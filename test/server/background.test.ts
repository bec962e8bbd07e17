// Of two replicas on one PostgreSQL, each loop runs on one. A loop that ran on both would show its queries on both.

import { expect, test } from "bun:test";
import { serverHistory } from "../../src/server/metrics/server-history.ts";
import type { Database } from "../../src/server/store/database.ts";
import { openPostgres } from "../../src/server/store/postgres/postgres.ts";
import { queryNumber } from "../../src/server/store/table.ts";
import { realSystem } from "../../src/base/system.ts";
import { describePostgres, startMigrated } from "../support/postgres.ts";
import { makeTestServer } from "../support/server.ts";

/** Longest pause of a loop here. */
const pauseMs = 500;

/** A query that each turn of the loop begins with. */
const loops = {
  "webhook deliveries": "FROM webhooks w WHERE w.deleted_at IS NULL",
  "upkeep: former certificates": "c.state = 'former' AND c.block_after IS NOT NULL",
  "upkeep: held names and addresses": "SELECT org_id FROM held_names UNION",
  "upkeep: late names": "SELECT DISTINCT org_id FROM nodes WHERE named_as",
  "upkeep: rolling updates": "WHERE move_open = 1",
  "upkeep: expiring certificates": "expiring_told_at IS NULL AND (not_after",
  "policies: unconfirmed": "WHERE p.unconfirmed_until <= $1",
  "policies: tests": "WHERE (p.text IS NOT NULL OR p.tests <> '[]')",
  "CA rotations": "WHERE rotation_phase <> 'none' AND rotation_paused = 0",
  "CA rotations: expiring CAs":
    "FROM authorities a JOIN organizations o ON o.id = a.org_id\n     WHERE a.state = 'active' AND o.deleted_at IS NULL AND a.not_after <",
  "upkeep of paths": "FROM paths x JOIN nodes",
  retention: "SELECT jti_hash FROM refresh_tokens",
};

describePostgres("the background loops of two replicas", () => {
  test("each loop runs on one of them, and on the other after a stop", async () => {
    await using cluster = await startMigrated();
    const url = await cluster.database();
    const start = async () => {
      const seen = new Set<string>();
      const note = (sql: string) => {
        for (const [loop, query] of Object.entries(loops)) if (sql.includes(query)) seen.add(loop);
      };
      const open = async (now: () => number) => {
        const db = await openPostgres({ url, now });
        const noted: Database = {
          ...db,
          all: (sql, params) => (note(sql), db.all(sql, params)),
          get: (sql, params) => (note(sql), db.get(sql, params)),
        };
        return { db: noted, dispose: () => undefined };
      };
      const sleep = (ms: number, signal?: AbortSignal) => realSystem().sleep(Math.min(ms, pauseMs), signal);
      const secretKey = new Uint8Array(32).fill(9);
      return { seen, server: await makeTestServer({ open, secretKey, network: { sleep } }) };
    };
    const isComplete = (seen: ReadonlySet<string>) => seen.size === Object.keys(loops).length;
    const until = async (done: () => boolean) => {
      while (!done()) await Bun.sleep(50);
    };
    const first = await start();
    await until(() => isComplete(first.seen));
    const second = await start();
    for (let turns = 0; turns < 3; turns++) {
      first.seen.clear();
      await until(() => first.seen.has("upkeep: rolling updates"));
    }
    expect([...second.seen]).toEqual([]);
    // Its last turn may still end.
    await first.server.app.flush();
    first.seen.clear();
    // Retention is due once an hour.
    second.server.clock.ms += 3_600_001;
    await until(() => isComplete(second.seen));
    expect([...first.seen]).toEqual([]);
    // Each writes about itself, and both are on this host.
    const later = second.server.clock.ms + 600_000;
    const history = () => serverHistory(second.server.db, later);
    while ((await history()).hosts.length === 0) await Bun.sleep(50);
    const [host, ...others] = (await history()).hosts;
    expect([others, typeof host?.points[0]?.requests]).toEqual([[], "number"]);
    const writers = "SELECT count(DISTINCT server_id) AS n FROM server_samples";
    while ((await queryNumber(second.server.db, writers)) < 2) await Bun.sleep(50);
    for (const { server } of [first, second]) await server[Symbol.asyncDispose]();
  }, 120_000);
});
