// The maximum that an organization may store: growth is refused at it, everything that protects goes on.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { verifyChains } from "../../../src/server/audit/verify.ts";
import { operator, record } from "../../../src/server/audit/record.ts";
import { defaultRetention } from "../../../src/server/options.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { makeBudget, storedEventBytes } from "../../../src/server/retention/budget.ts";
import type { Database } from "../../../src/server/store/database.ts";
import { queryNumber } from "../../../src/server/store/table.ts";
import { rollouts } from "../../../src/server/store/tables/rollouts.ts";
import { makeKeys, registerNode, registrationToken, sendRegistration } from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { failureOf } from "../store/cases.ts";

let server: TestServer;
let org: Organization;
let owner: string;
let directory: ReturnType<typeof temporaryDirectory>;
beforeEach(async () => {
  directory = temporaryDirectory();
  const retention = { ...defaultRetention, organizationBytes: 1_000_000 };
  server = await makeTestServer({ dataDirectory: directory.path, retention, accessLifetimeS: 1_000_000 });
  org = await server.organization("acme");
  owner = await server.person("owner@example.org");
  await server.join(org, "owner@example.org", "owner");
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
  directory[Symbol.dispose]();
});

const send = (method: string, path: string, body?: unknown, slug = "acme") =>
  server.send(method, `/api/org/${slug}/${path}`, { token: owner, body });
const Made = v.looseObject({ id: v.number() });
const full = { status: 409, json: expect.objectContaining({ code: "organization_full" }) };

/** Fills the organization with events. */
async function fill(bytes: number) {
  const event = { orgId: org.id, at: server.clock.ms, actor: operator, subject: "x" };
  await server.db.write((tx) =>
    record(tx, { ...event, type: "group.updated", after: { text: "x".repeat(bytes) } }),
  );
  server.clock.ms += 600_000;
}

test("at the maximum a policy file can remove, and add nothing", async () => {
  const policy = (ports: readonly number[], more = "") =>
    `groups: {}\nrules:\n${ports.map((port) => `  - {protocol: tcp, ports: ${port}, peer: any, target: any}\n`).join("")}${more}`;
  const apply = (text: string) => send("POST", "policy/apply/", { policy: text, prune: true });
  expect((await apply(policy([1, 2, 3, 4]))).status).toBe(200);
  await fill(1_100_000);
  expect(await apply(policy([1, 2, 3, 4, 5]))).toMatchObject(full);
  expect(await apply(policy([1, 2, 3, 6]))).toMatchObject(full);
  expect(await apply(policy([1, 2, 3], `# ${"x".repeat(2000)}\n`))).toMatchObject(full);
  expect((await apply(policy([1, 2]))).status).toBe(200);
  // The same again adds nothing, not even an event.
  expect((await apply(policy([1, 2]))).json).toMatchObject({ is_empty: true, version: 2 });
  const rules = v.parse(
    v.array(v.looseObject({ ports: v.string() })),
    (await send("GET", "firewall_rules/")).json,
  );
  expect(rules.map(({ ports }) => ports)).toEqual(["1", "2"]);
});

test("at the maximum nothing is added; revocations, check-ins, renewals and deletions go on, and are recorded", async () => {
  const node = await registerNode(server, org, "laptop");
  const other = await registerNode(server, org, "other");
  const token = v.parse(Made, (await send("POST", "registration_tokens/", { uses: 2 })).json).id;
  const rule = {
    direction: "inbound",
    protocol: "tcp",
    ports: "443",
    peer: { any: true },
    target: { any: true },
  };
  const ruleId = v.parse(Made, (await send("POST", "firewall_rules/", rule)).json).id;
  await send("POST", "groups/", { name: "web" });
  const secret = await registrationToken(server, org);
  await fill(1_100_000);
  const growth = [
    await send("POST", "groups/", { name: "more" }),
    await send("PATCH", "groups/web/", { description: "more" }),
    await send("POST", "firewall_rules/", rule),
    await send("PATCH", `firewall_rules/${ruleId}/`, { description: "more" }),
    await send("POST", "registration_tokens/", { uses: 1 }),
    await send("POST", "service_tokens/", { name: "ci", role: "member" }),
    await send("POST", "members/", { email: "more@example.org" }),
    await send("POST", "webhooks/", { url: "https://93.184.216.34/" }),
    await send("POST", "nodes/", { name: "more" }),
    await send("PATCH", `nodes/${node.id}/`, { config_overrides: { routines: 2 } }),
    await send("PATCH", "", { name: "More" }),
    await sendRegistration(server, "acme", {
      name: "more",
      ...(await makeKeys()),
      registration_token: secret,
    }),
  ];
  for (const { status, json } of growth) expect({ status, json }).toMatchObject(full);
  expect(growth[0]?.text).toContain("Revocations, deletions, check-ins and renewals still work");
  // The use of the token was not consumed, and a stranger learns nothing.
  expect(
    await queryNumber(server.db, "SELECT max(used) AS n FROM registration_tokens WHERE uses = 1000"),
  ).toBe(1);
  const stranger = await sendRegistration(server, "acme", {
    name: "x",
    ...(await makeKeys()),
    registration_token: "no",
  });
  expect(stranger.json).toMatchObject({ code: "token_not_valid" });
  const eventsBefore = await queryNumber(server.db, "SELECT count(*) AS n FROM events");
  const protections = [
    await send("PATCH", `nodes/${node.id}/`, { groups: [], is_relay: true }),
    await send("PATCH", `firewall_rules/${ruleId}/`, { ports: "444" }),
    await send("POST", `nodes/${node.id}/renew_cert/`, {}),
    await node.checkin(),
    await node.download(),
    await send("DELETE", `nodes/${other.id}/`),
    await send("POST", `nodes/${other.id}/restore/`, {}),
    await send("POST", "ca/rotate/", { action: "start" }),
    await send("DELETE", `registration_tokens/${token}/`),
    await send("DELETE", `firewall_rules/${ruleId}/`),
    await send("DELETE", "groups/web/"),
    await send("PATCH", "", { ca_rotation_auto: false }),
  ];
  expect(protections.map(({ status }) => status).filter((status) => status >= 300)).toEqual([]);
  expect(await queryNumber(server.db, "SELECT count(*) AS n FROM events")).toBeGreaterThanOrEqual(
    eventsBefore + 9,
  );
  expect(
    (await verifyChains(server.db, server.app.services.secretKey)).every(({ breaks }) => breaks.length === 0),
  ).toBe(true);
});

test("at the maximum a PATCH that only removes or shortens works, and one that changes or adds does not", async () => {
  const node = await registerNode(server, org, "laptop");
  const rule = {
    direction: "inbound",
    protocol: "tcp",
    ports: "443",
    peer: { any: true },
    target: { any: true },
  };
  const made = await send("POST", "firewall_rules/", { ...rule, description: "a long text" });
  const rulePath = `firewall_rules/${v.parse(Made, made.json).id}/`;
  await send("POST", "groups/", { name: "web", description: "a long text" });
  expect((await send("PATCH", `nodes/${node.id}/`, { subnets: ["192.168.7.0/24"] })).status).toBe(200);
  const overrides = {
    handshakes: { try_interval: "1s" },
    listen: { port: 5000 },
    preferred_ranges: ["10.0.0.0/8", "10.1.0.0/16"],
  };
  for (const path of ["", `nodes/${node.id}/`])
    expect((await send("PATCH", path, { config_overrides: overrides })).status).toBe(200);
  await fill(1_100_000);
  const refused = [
    ["", { config_overrides: { listen: { port: 5001 } } }],
    ["", { config_overrides: { ...overrides, routines: 1 } }],
    ["", { config_overrides: { preferred_ranges: ["10.0.0.0/8", "10.2.0.0/16"] } }],
    ["", { config_overrides: {}, name: "Other" }],
    [`nodes/${node.id}/`, { config_overrides: { handshakes: { try_interval: "10s" } } }],
    [`nodes/${node.id}/`, { config_overrides: {}, name: "lapdog" }],
    [rulePath, { description: "a lean text" }],
    ["groups/web/", { description: "a lean text" }],
  ] as const;
  for (const [path, body] of refused) expect(await send("PATCH", path, body)).toMatchObject(full);
  // Groups and routes come by several ways: each asks.
  const others = [
    [`nodes/${node.id}/`, { groups: ["web", "new"] }],
    [`nodes/${node.id}/`, { exit_groups: ["new"] }],
    [`nodes/${node.id}/`, { subnets: ["192.168.7.0/24", "192.168.8.0/24"] }],
    [rulePath, { peer: { group: "new" } }],
  ] as const;
  for (const [path, body] of others) expect(await send("PATCH", path, body)).toMatchObject(full);
  const routes = `routes:\n  - {network: 192.168.8.0/24, via: "node:laptop"}\n`;
  const applied = { policy: routes, prune: false, keep_file: true };
  expect(await send("POST", "policy/apply/", applied)).toMatchObject(full);
  const allowed = [
    [`nodes/${node.id}/`, { groups: ["web"], subnets: ["192.168.7.0/24"] }],
    [`nodes/${node.id}/`, { groups: [], subnets: [] }],
    [rulePath, { peer: { group: "web" } }],
    ["", { config_overrides: overrides, name: "acme" }],
    ["", { config_overrides: { listen: { port: 5000 }, preferred_ranges: ["10.1.0.0/16"] } }],
    ["", { config_overrides: {}, name: "a" }],
    [`nodes/${node.id}/`, { config_overrides: { listen: {} }, name: "lap" }],
    [`nodes/${node.id}/`, { config_overrides: {} }],
    [rulePath, { description: "a text" }],
    [rulePath, { description: "" }],
    ["groups/web/", { description: "" }],
    ["groups/web/", {}],
  ] as const;
  for (const [path, body] of allowed)
    expect([path, body, (await send("PATCH", path, body)).status]).toEqual([path, body, 200]);
  expect((await send("GET", "")).json).toMatchObject({ config_overrides: {}, name: "a" });
});

test("requests are counted as they come, and each organization for itself", async () => {
  const ranges = Object.fromEntries(
    Array.from({ length: 2000 }, (_, at) => [`10.${at >> 8}.${at & 255}.0/24`, true]),
  );
  const overrides = [{}, { lighthouse: { remote_allow_list: ranges } }];
  let accepted = 0;
  for (let at = 0; at < 60; at++) {
    const { status } = await send("PATCH", "", { config_overrides: overrides[at % 2] });
    if (status === 200 && at % 2 === 1) accepted++;
  }
  expect(accepted).toBeGreaterThan(5);
  expect(accepted).toBeLessThan(15);
  expect(await storedEventBytes(server.db, org.id)).toBeLessThan(1_100_000);
  await server.join(await server.organization("second", "10.78.0.0/16"), "owner@example.org", "owner");
  expect((await send("POST", "groups/", { name: "a" }, "second")).status).toBe(201);
});

test("deliveries of webhooks count: each event has one for each webhook", async () => {
  await server.db.write(async (tx) => {
    const hook = await tx.get(
      `INSERT INTO webhooks (org_id, url, events, secret_sealed, created_at, seen_event_id)
       VALUES ($1, 'https://192.0.2.1/', '["*"]', '', 0, 999999999) RETURNING id`,
      [org.id],
    );
    await tx.run(
      `INSERT INTO deliveries (webhook_id, event_id, created_at)
       WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
       SELECT $1, (SELECT max(id) FROM events), $2 FROM n`,
      [Number(hook?.["id"]), server.clock.ms],
    );
  });
  server.clock.ms += 600_000;
  expect(await send("POST", "groups/", { name: "a" })).toMatchObject(full);
  expect(await send("POST", "alarms/test/", {})).toMatchObject(full);
});

test("rollouts count: each has a row for each node", async () => {
  await registerNode(server, org, "laptop");
  await registerNode(server, org, "other");
  await server.db.write(async (tx) => {
    await tx.run(
      `INSERT INTO rollouts (org_id, agent, groups, hours, watch_s, state, ring, rings, since, created_at, ended_at)
       WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
       SELECT $1, '0.3.0', '[]', '[]', 1800, 'stopped', 1, 1, 0, i, 1 FROM n`,
      [org.id],
    );
    await tx.run(
      `INSERT INTO rollout_nodes (rollout_id, node_id, ring, state, at)
       SELECT r.id, n.id, 1, 'waiting', 0 FROM rollouts r, nodes n WHERE r.org_id = $1 AND n.org_id = $1`,
      [org.id],
    );
  });
  server.clock.ms += 600_000;
  expect(await send("POST", "rollouts/", { agent: "0.3.0" })).toMatchObject(full);
});

test("archives in the data directory count until they are moved away", async () => {
  expect((await send("POST", "groups/", { name: "a" })).status).toBe(201);
  const archive = join(directory.path, "archive");
  mkdirSync(archive);
  writeFileSync(join(archive, `events-${org.id}-1-2.jsonl`), "x".repeat(1_000_000));
  writeFileSync(join(archive, `events-${org.id}9-1-2.jsonl`), "x".repeat(1_000_000));
  server.clock.ms += 600_000;
  expect(await send("POST", "groups/", { name: "b" })).toMatchObject(full);
  rmSync(join(archive, `events-${org.id}-1-2.jsonl`));
  server.clock.ms += 6000;
  expect((await send("POST", "groups/", { name: "b" })).status).toBe(201);
});

test("every request that changes an organization is refused at the maximum, or named here with its reason", () => {
  const allowed: Record<string, string> = {
    ca_rotate: "protects",
    domains_check_create: "one word; the row has a fixed size",
    drills_abort: "two times; the row has a fixed size",
    firewall_rules_test: "stores nothing",
    members_partial_update: "takes rights away too; the row has a fixed size",
    nodes_checkin: "nodes go on",
    nodes_drill_report: "a row for each node of a drill, of which 60 are kept, with a maximum of peers",
    nodes_reauthenticate: "one time; the row has a fixed size",
    nodes_register: "checks after the credential, see above",
    nodes_renew_cert: "nodes go on",
    nodes_restore: "ends a revocation that was a mistake",
    nodes_transfer: "one number; the row has a fixed size",
    nodes_update_report: "some sentences in a row that is there, which have a maximum",
    phones_import: "another key of a phone; the row has a fixed size",
    policy_confirm: "ends an application, which is refused at the maximum",
    policy_partial_update: "one switch; the row has a fixed size",
    policy_plan: "stores nothing",
    policy_propose: "stores nothing",
    policy_revert: "takes an application back, which is refused at the maximum",
    policy_test: "stores nothing",
    registrations_approve: "one word; the row has a fixed size",
    registrations_refuse: "one word; the row has a fixed size",
    relays_partial_update: "one number; the row has a fixed size",
    rollouts_steer: "one word; the row has a fixed size",
    routes_partial_update:
      "one number and one switch for each network of a router, of which there is a maximum",
    seals_sealable_create: "stores nothing",
    webhooks_deliveries_send_again: "one time; the row has a fixed size",
    webhooks_partial_update: "takes subscriptions away too; there are 20 at most",
  };
  const changing = server.app.routes.filter(
    ({ path, method }) => path.startsWith("/api/org/:slug/") && (method === "POST" || method === "PATCH"),
  );
  const free = changing.filter(({ grows }) => grows !== true).map(({ name }) => name);
  expect(free.toSorted()).toEqual(Object.keys(allowed));
});

test("settings of rollouts count: each keeps its own", async () => {
  const settings = { preferred_ranges: ["x".repeat(50_000)] };
  const times = { since: 1, createdAt: 1, endedAt: 1 };
  const row = {
    orgId: org.id,
    agent: null,
    engine: null,
    groups: [],
    hours: [],
    watchS: 60,
    settings,
    ...times,
  };
  await server.db.write(async (tx) => {
    for (let at = 0; at < 25; at++)
      await rollouts.insert(tx, { ...row, state: "stopped", ring: 1, rings: 1 });
  });
  expect(await send("POST", "groups/", { name: "more" })).toMatchObject(full);
});

test("an organization that was measured at the start is not measured by its first write", async () => {
  const measured: string[] = [];
  const noting: Database = {
    ...server.db,
    get: (sql, params) => {
      if (sql.includes("FROM webhooks WHERE org_id")) measured.push(sql);
      return server.db.get(sql, params);
    },
  };
  const budget = makeBudget({ ...server.app.services, db: noting });
  const admitted = () => budget.require(org, {}, () => true);
  // The first write may come while the measurement runs: it waits for it.
  await Promise.all([budget.prepare(new AbortController().signal), admitted()]);
  expect(measured.length).toBe(1);
  await admitted();
  expect(measured.length).toBe(1);
  await fill(1_100_000);
  expect(await failureOf(admitted())).toMatchObject({ code: "organization_full" });
  expect(measured.length).toBe(2);
});
