// The change feed at scale: a change of one node of ten thousand costs the work for one node.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { publishLateNames } from "../../../src/server/names/publish.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { registerNode } from "../../support/nodes.ts";
import { makeTestServer, onPostgres, type TestServer } from "../../support/server.ts";

// Both databases run the same code; PostgreSQL needs more time for each request.
const count = onPostgres ? 1000 : 10_000;
let server: TestServer;
let org: Organization;
let owner = "";
let ids: number[] = [];

beforeAll(async () => {
  server = await makeTestServer();
  org = await server.organization("acme");
  owner = await server.person("owner@example.org");
  await server.join(org, "owner@example.org", "owner");
  const { id } = await registerNode(server, org, "node-1");
  await multiply(id);
  await publishLateNames(server.app.services);
  const rows = await server.db.all("SELECT id FROM nodes WHERE org_id = $1 ORDER BY id", [org.id]);
  ids = rows.map((row) => Number(row["id"]));
}, 120_000);
afterAll(async () => {
  await server[Symbol.asyncDispose]();
});

/** More nodes as rows only, since ten thousand registrations would take too long. */
async function multiply(id: number): Promise<void> {
  const numbers = `WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ${count})`;
  await server.db.write(async (tx) => {
    await tx.run(
      `INSERT INTO nodes (org_id, name, ip, state, mode, host_public_key, own_version, created_at, registered_at,
         pins_defaults)
       ${numbers} SELECT org_id, 'node-' || i, '10.77.' || (i / 250) || '.' || (i % 250 + 1), 'active', mode,
         host_public_key, own_version, created_at, registered_at, pins_defaults FROM n JOIN nodes ON nodes.id = $1`,
      [id],
    );
    await tx.run(
      `INSERT INTO certificates (org_id, node_id, authority_id, kind, version, fingerprint, pem, not_before, not_after,
         renew_at, state, created_at)
       SELECT c.org_id, n.id, authority_id, kind, version, fingerprint || n.id, pem, not_before, not_after, c.renew_at,
         c.state, c.created_at FROM certificates c JOIN nodes n ON n.org_id = c.org_id
       WHERE c.node_id = $1 AND n.id <> $1`,
      [id],
    );
  });
}

const download = (id: number, etag?: string) =>
  server.send("GET", `/api/org/acme/nodes/${id}/download_config/`, {
    token: owner,
    ...(etag === undefined ? {} : { headers: { "If-None-Match": etag } }),
  });
const rendered = () => {
  const samples = server.app.services.meters.samples();
  return samples.find(({ name }) => name === "configurations_rendered_total")?.values[0]?.value ?? Number.NaN;
};

test("a change of one node wakes only that node and renders only its configuration", async () => {
  expect(ids).toHaveLength(count);
  // One poll in ten is checked; all of them wait.
  const some = ids.filter((_, at) => at % 10 === 0);
  const etags = new Map<number, string>();
  for (const id of some) etags.set(id, (await download(id)).headers.get("etag") ?? "");
  expect(new Set(etags.values()).size).toBe(count / 10);

  const { changes } = server.app.services;
  const woken: number[] = [];
  const polls = ids.map((id) => ({ id, poll: changes.open(org.id, id) }));
  const waiting = polls.map(async ({ id, poll }) => {
    if (await poll.wait(60_000)) woken.push(id);
  });
  const before = rendered();
  const changed = ids[count / 2] ?? 0;
  const patched = await server.send("PATCH", `/api/org/acme/nodes/${changed}/`, {
    token: owner,
    body: { config_overrides: { listen: { port: 4343 } } },
  });
  expect(patched.status).toBe(200);
  for (const end = Date.now() + 20_000; woken.length === 0 && Date.now() < end;) await Bun.sleep(10);
  await Bun.sleep(200);
  expect(woken).toEqual([changed]);

  const versions = new Map<number, number>();
  for (const id of some) {
    const answer = await download(id, etags.get(id));
    expect([id, answer.status]).toEqual([id, id === changed ? 200 : 304]);
    versions.set(id, Number(answer.headers.get("x-config-version")));
  }
  // Only its own version rises: the others have nothing to fetch or to confirm.
  expect(new Set(versions.values()).size).toBe(2);
  expect(versions.get(changed)).toBe(Math.max(...versions.values()));
  expect(rendered() - before).toBe(1);

  for (const { poll } of polls) poll.close();
  await Promise.all(waiting);
}, 120_000);

test("a change for all nodes is rendered once for all of the same kind", async () => {
  const few = ids.slice(0, 100);
  const before = rendered();
  const rule = { direction: "inbound", protocol: "tcp", ports: "22", peer: { any: true } };
  const made = await server.send("POST", "/api/org/acme/firewall_rules/", {
    token: owner,
    body: { ...rule, target: { any: true } },
  });
  expect(made.status).toBe(201);
  for (let round = 0; round < 3; round++) {
    for (const id of few) {
      const answer = await download(id);
      expect((await download(id, answer.headers.get("etag") ?? "")).status).toBe(304);
      expect(answer.text).toContain('port: \\"22\\"');
    }
  }
  expect(rendered() - before).toBe(1);
});
