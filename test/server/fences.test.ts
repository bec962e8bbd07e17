// A replica that was suspended in a turn of a loop continues while another replica has the lease: it changes nothing. Each
// piece of work is made due in that moment, and is done once the lease is back.

import { expect, test } from "bun:test";
import { realSystem } from "../../src/base/system.ts";
import { registerNode } from "../support/nodes.ts";
import { describePostgres, openedAt, startMigrated } from "../support/postgres.ts";
import { makeTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** How often leases are renewed, and how long the pauses of loops are here. */
const [renewEveryMs, pauseMs] = [2500, 50];
const hourMs = 3_600_001;

type Case = {
  loop: string;
  /** SQL statements. */
  due: readonly string[];
  /** How many rows still wait. */
  left: string;
};

const cases: Readonly<Record<string, Case>> = {
  "events become deliveries": {
    loop: "webhook deliveries",
    due: ["UPDATE webhooks SET seen_event_id = 0"],
    left: "SELECT count(*) AS n FROM webhooks WHERE seen_event_id = 0",
  },
  "deliveries are sent": {
    loop: "webhook deliveries",
    due: ["UPDATE deliveries SET next_at = 1"],
    left: "SELECT count(*) AS n FROM deliveries WHERE next_at = 1",
  },
  "former certificates are blocked": {
    loop: "upkeep of nodes",
    due: [
      "UPDATE certificates SET state = 'former', block_after = 1, block_version = 1 WHERE node_id = $former",
    ],
    left: "SELECT count(*) AS n FROM certificates WHERE node_id = $former AND state = 'former'",
  },
  "held names are freed": {
    loop: "upkeep of nodes",
    due: [
      "INSERT INTO held_names (org_id, name, node_id, held_until, free_at) VALUES (1, 'gone', $revoked, 1, 1)",
    ],
    left: "SELECT count(*) AS n FROM held_names WHERE name = 'gone'",
  },
  "late names are published": {
    loop: "upkeep of nodes",
    due: ["UPDATE nodes SET name = 'renamed' WHERE id = $node"],
    left: "SELECT count(*) AS n FROM nodes WHERE id = $node AND named_as NOT LIKE 'renamed %'",
  },
  "a rolling update ends": {
    loop: "upkeep of nodes",
    due: ["UPDATE organizations SET move_open = 1 WHERE slug = 'empty'"],
    left: "SELECT count(*) AS n FROM organizations WHERE move_open = 1",
  },
  "an expiring certificate is announced": {
    loop: "upkeep of nodes",
    due: ["UPDATE certificates SET not_after = $soon WHERE node_id = $node AND state = 'current'"],
    left: "SELECT count(*) AS n FROM certificates WHERE not_after = $soon AND kind = 'overlay' AND expiring_told_at IS NULL",
  },
  "an unconfirmed policy goes back": {
    loop: "policies",
    due: ["UPDATE policies SET unconfirmed_until = 1 WHERE org_id = 1"],
    left: "SELECT count(*) AS n FROM policies WHERE unconfirmed_until IS NOT NULL",
  },
  "a policy is tested": {
    loop: "policies",
    due: ["UPDATE policies SET text = 'rules: []', checked_state = '' WHERE org_id = 1"],
    left: "SELECT count(*) AS n FROM policies WHERE checked_state = ''",
  },
  "an expiring CA is announced": {
    loop: "CA rotations",
    due: ["UPDATE authorities SET not_after = $soon WHERE org_id = 2"],
    left: `SELECT count(*) AS n FROM organizations WHERE id = 2
      AND NOT EXISTS (SELECT 1 FROM events WHERE org_id = 2 AND type = 'ca.expiring')`,
  },
  "paths of revoked nodes are deleted": {
    loop: "upkeep of paths",
    due: [
      `INSERT INTO paths (node_id, peer, org_id, path, relays, probe, at)
         VALUES ($revoked, '10.77.0.9', 1, 'direct', '[]', 'answers', 1)`,
    ],
    left: "SELECT count(*) AS n FROM paths",
  },
  // Before the last turns of the clock, which end the session by themselves.
  "ended sessions are deleted": {
    loop: "retention",
    due: ["UPDATE refresh_tokens SET expires_at = 1"],
    left: "SELECT count(*) AS n FROM refresh_tokens WHERE expires_at = 1",
  },
  "changes of who reaches whom are put into the audit log": {
    loop: "history of the policy",
    due: ["UPDATE nodes SET groups = '[\"noted\"]' WHERE id = $node"],
    left: "SELECT count(*) AS n FROM policy_changes",
  },
  "an update in rings goes on": {
    loop: "updates in rings",
    due: [
      `INSERT INTO rollouts (org_id, engine, groups, hours, watch_s, state, ring, rings, since, created_at)
         VALUES (1, '1.12.0', '[]', '[]', 60, 'running', 1, 1, 1, 1)`,
    ],
    left: "SELECT count(*) AS n FROM rollouts WHERE ended_at IS NULL",
  },
  "a silent ephemeral node ends": {
    loop: "ephemeral nodes",
    due: ["UPDATE nodes SET ephemeral_silence_s = 0, watched_from = 1 WHERE id = $former"],
    left: "SELECT count(*) AS n FROM nodes WHERE id = $former AND state <> 'revoked'",
  },
  "old counts of nodes are deleted": {
    loop: "online counts",
    due: ["INSERT INTO online_counts (org_id, at, online, active) VALUES (1, 1, 0, 1)"],
    left: "SELECT count(*) AS n FROM online_counts WHERE at = 1",
  },
  "a provider is asked about a person": {
    loop: "people at their providers",
    due: [
      `INSERT INTO identity_providers (name, issuer, client_id, secret_sealed, scopes, groups_claim, domains,
         required_groups, roles, created_at)
       VALUES ('x', 'https://8.8.8.8', 'a', '', 'openid', 'groups', '[]', '[]', '[]', 1)`,
      `INSERT INTO provider_grants (provider_id, user_id, subject, token_sealed, next_at)
       SELECT id, 1, 'ada', 'unreadable', 1 FROM identity_providers`,
    ],
    left: "SELECT count(*) AS n FROM provider_grants WHERE next_at = 1",
  },
  "a user is asked to confirm a node": {
    loop: "confirmations of nodes",
    due: [
      "UPDATE organizations SET reauthenticate_days = 1 WHERE id = 1",
      "UPDATE nodes SET owner_id = 1 WHERE id = $node",
    ],
    left: `SELECT count(*) AS n FROM nodes WHERE id = $node
      AND NOT EXISTS (SELECT 1 FROM owner_proofs WHERE node_id = $node AND told_at IS NOT NULL)`,
  },
  "a node that is away is told": {
    loop: "ephemeral nodes",
    due: [
      "UPDATE organizations SET notify_away_minutes = 5 WHERE id = 1",
      `INSERT INTO sightings (node_id, last_checkin_at) VALUES ($node, 1)
         ON CONFLICT (node_id) DO UPDATE SET last_checkin_at = 1`,
    ],
    left: "SELECT count(*) AS n FROM nodes WHERE id = $node AND away_since IS NULL",
  },
  "after a pause of the server, people without a proof get a day": {
    loop: "people without a proof",
    due: [
      "UPDATE organizations SET revoke_unproven_nodes = 1 WHERE id = 1",
      `INSERT INTO meta (key, value) VALUES ('unproven_watch', '1')
         ON CONFLICT (key) DO UPDATE SET value = excluded.value`,
    ],
    left: "SELECT count(*) AS n FROM meta WHERE key = 'unproven_watch' AND value = '1'",
  },
};

describePostgres("a replica without its leases", () => {
  test("does nothing of what is due", async () => {
    await using cluster = await startMigrated();
    const url = await cluster.database();
    /** `isAsleep`: it no longer renews its leases. */
    const replica = { isSuspended: false, isAsleep: false };
    const sleep = async (ms: number, signal?: AbortSignal) => {
      await realSystem().sleep(Math.min(ms, pauseMs), signal);
      const isHeld = () => ms === renewEveryMs && replica.isSuspended && signal?.aborted !== true;
      while (isHeld()) {
        replica.isAsleep = true;
        await Bun.sleep(5);
      }
    };
    const open = openedAt(url);
    const network = { sleep, fetch: async () => new Response(null, { status: 204 }) };
    await using server = await makeTestServer({ open, network });
    const ids = await furnish(server);
    const { db, log, clock } = server;
    const words = { ...ids, soon: clock.ms + 86_400_000 };
    const insert = (sql: string) =>
      Object.entries(words).reduce((text, [word, value]) => text.replaceAll(`$${word}`, String(value)), sql);
    const run = (sql: string) => db.write((tx) => tx.run(insert(sql)));
    const countOf = async (sql: string) => Number((await db.get(insert(sql)))?.["n"]);
    const refusals = (loop: string) =>
      log.filter((line) => line.includes(`Another replica has taken over: ${loop}`)).length;
    const held = "SELECT count(*) AS n FROM leases WHERE holder NOT IN ('', 'another')";
    const unsettled = "SELECT count(*) AS n FROM deliveries WHERE next_at IS NOT NULL";
    const loops = new Set(Object.values(cases).map(({ loop }) => loop));

    // Each loop has a case.
    await until(async () => (await countOf(held)) >= loops.size);
    expect((await db.all("SELECT name FROM leases")).map(({ name }) => String(name)).sort()).toEqual(
      [...loops].sort(),
    );
    for (const [name, { loop, due, left }] of Object.entries(cases)) {
      const soon = (what: string, look: () => boolean | Promise<boolean>) =>
        until(look, { what: `${what}: ${name}`, ms: 30_000, everyMs: 10 });
      await soon("all leases", async () => (await countOf(held)) === loops.size);
      // The outcome of a delivery under way is taken from a former holder, too.
      await soon("the end of deliveries", async () => (await countOf(unsettled)) === 0);
      replica.isSuspended = true;
      await soon("the suspension", () => replica.isAsleep);
      await run("UPDATE leases SET holder = 'another', fence = fence + 1, expires_at = 9000000000000000");
      const before = refusals(loop);
      for (const sql of due) await run(sql);
      const waiting = await countOf(left);
      expect([name, waiting > 0]).toEqual([name, true]);
      // Hourly work.
      clock.ms += hourMs;
      await soon("a refusal", () => refusals(loop) > before);
      expect([name, await countOf(left)]).toEqual([name, waiting]);
      await run("UPDATE leases SET expires_at = 0");
      replica.isSuspended = replica.isAsleep = false;
      clock.ms += hourMs;
      await soon("the work", async () => (await countOf(left)) === 0);
    }
  }, 120_000);
});

/** What the cases make due, and the ids that they name. */
async function furnish(server: TestServer) {
  const { db } = server;
  const token = await server.person("owner@example.org");
  const org = await server.organization("acme");
  await server.join(org, "owner@example.org", "owner");
  await server.organization("empty", "10.78.0.0/16");
  const ids = [];
  for (const name of ["node", "former", "revoked"]) ids.push((await registerNode(server, org, name)).id);
  const [node = 0, former = 0, revoked = 0] = ids;
  const api = (method: string, path: string, body?: unknown) =>
    server.send(method, `/api/org/acme/${path}`, { token, ...(body === undefined ? {} : { body }) });
  expect((await api("DELETE", `nodes/${revoked}/`)).status).toBe(204);
  expect((await api("POST", "webhooks/", { url: "https://8.8.8.8/", events: ["*"] })).status).toBe(201);
  expect((await api("POST", "policy/apply/", { policy: "rules: []", confirm: 86_400 })).status).toBe(200);
  expect(await db.get("SELECT count(*) AS n FROM refresh_tokens")).toEqual({ n: 1 });
  return { node, former, revoked };
}
