// Routes are a view of the nodes' subnets: several routers of one network, their order in configurations, offers of machines.

import { afterEach, beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { Event } from "../../../src/api/events.ts";
import { Route } from "../../../src/api/paths/routes.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { readYaml } from "../../../src/node/files/config/read-yaml.ts";
import { registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;
let nodes: Record<"a" | "b" | "user", RegisteredNode>;

beforeEach(async () => {
  server = await makeTestServer();
  org = await server.organization("acme");
  admin = await server.person("admin@acme.example");
  await server.join(org, "admin@acme.example", "admin");
  const made = async (name: string) => registerNode(server, org, name);
  nodes = { a: await made("a"), b: await made("b"), user: await made("user") };
});

afterEach(() => server[Symbol.asyncDispose]());

const path = "/api/org/acme/routes/";
const send = (method: string, body?: unknown, query = "") =>
  server.send(method, path + query, { token: admin, ...(body === undefined ? {} : { body }) });
const list = async () => v.parse(v.array(Route), (await send("GET")).json);
const network = "192.168.7.0/24";

async function unsafeRoutes(node: RegisteredNode): Promise<unknown> {
  const { json } = await server.send("GET", `/api/org/acme/nodes/${node.id}/config/`, { token: admin });
  const { config_yml: text } = v.parse(v.object({ config_yml: v.string() }), json);
  return Object(readYaml(text, "config.yml")["tun"])["unsafe_routes"];
}

const checkin = (node: RegisteredNode, more: object = {}) =>
  server.send("POST", `/api/org/acme/nodes/${node.id}/checkin/`, {
    token: node.token,
    body: { version: "0.2.0", uptime: 1, ...more },
  });

test("several nodes route one network, the preferred one last in the configurations of the others", async () => {
  const { a, b, user } = nodes;
  const created = await send("POST", { network, via: [a.id, b.id] });
  expect(created.status).toBe(201);
  expect(v.parse(Route, created.json).routers.map(({ node_name: name, metric }) => [name, metric])).toEqual([
    ["a", 100],
    ["b", 100],
  ]);
  const entry = (node: RegisteredNode, metric = 100) => ({ route: network, via: node.ip, metric });
  expect(await unsafeRoutes(user)).toEqual([entry(b), entry(a)]);
  // A router of the network has its own way there.
  expect(await unsafeRoutes(a)).toEqual([]);
  expect((await send("PATCH", { network, via: [b.id], metric: 50 })).status).toBe(200);
  expect(await unsafeRoutes(user)).toEqual([entry(a), entry(b, 50)]);
  expect((await send("PATCH", { network, via: [b.id], maintenance: true })).status).toBe(200);
  expect(await unsafeRoutes(user)).toEqual([entry(b, 1_000_050), entry(a)]);
  // One router: as former agents know it.
  expect(
    (await send("DELETE", undefined, `?network=${encodeURIComponent(network)}&via=${a.id}`)).status,
  ).toBe(204);
  expect(await unsafeRoutes(user)).toEqual([{ route: network, via: b.ip }]);
  // A node that is no router of it any more: nothing is changed or recorded.
  const again = await send("DELETE", undefined, `?network=${encodeURIComponent(network)}&via=${a.id}`);
  expect([again.status, again.text]).toMatchObject([404, expect.stringContaining("is no router of")]);
  expect((await send("DELETE", undefined, `?network=${encodeURIComponent(network)}`)).status).toBe(204);
  expect(await unsafeRoutes(user)).toEqual([]);
  // Options end with their subnet.
  expect((await send("POST", { network, via: [b.id] })).json).toMatchObject({
    routers: [{ metric: 100, maintenance: false }],
  });
});

test("a node routes 64 networks at most, whichever way they come", async () => {
  const { a } = nodes;
  const subnets = Array.from({ length: 64 }, (_, at) => `192.168.${at + 100}.0/24`);
  const patch = (body: object) =>
    server.send("PATCH", `/api/org/acme/nodes/${a.id}/`, { token: admin, body });
  expect((await patch({ subnets })).status).toBe(200);
  const refused = await send("POST", { network, via: [a.id] });
  expect([refused.status, refused.text]).toEqual([
    400,
    expect.stringContaining("The node a would have 65 subnets; the maximum is 64."),
  ]);
});

test("a network is told and listed however many nodes offer networks", async () => {
  const offers = JSON.stringify([{ network: "192.168.9.0/24" }]);
  await server.db.write((tx) =>
    tx.run(
      `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
       INSERT INTO nodes (org_id, name, ip, state, advertised, created_at)
       SELECT $1, 'n' || i, '10.99.' || (i / 250) || '.' || (i % 250), 'active', $2, 0 FROM n`,
      [org.id, offers],
    ),
  );
  const late = await registerNode(server, org, "late");
  const created = await send("POST", { network, via: [late.id] });
  expect(v.parse(Route, created.json).routers).toMatchObject([{ node_name: "late", approved: true }]);
  expect((await list()).map((each) => each.network)).toEqual([network, "192.168.9.0/24"]);
});

test("what subnets may not be, routes may not be; unknown nodes and networks without a router are named", async () => {
  const { a } = nodes;
  const refused = await send("POST", { network: "10.77.3.0/24", via: [a.id] });
  expect([refused.status, refused.text]).toEqual([400, expect.stringContaining("overlaps the overlay")]);
  expect((await send("POST", { network: "0.0.0.0/0", via: [a.id] })).status).toBe(400);
  expect((await send("POST", { network, via: [999] })).status).toBe(404);
  expect((await send("PATCH", { network, metric: 1 })).status).toBe(404);
  expect((await send("PATCH", { network, via: [a.id], metric: 1 })).status).toBe(404);
  expect(await list()).toEqual([]);
});

test("a machine offers a network by its check-in, and an administrator approves it", async () => {
  const { a, b } = nodes;
  const offer = { network, behind: "192.168.1.0/24", masquerade: true, watch: "192.168.1.1" };
  expect((await checkin(a, { advertised: [offer] })).status).toBe(200);
  const { network: _, ...shown } = offer;
  expect(await list()).toMatchObject([
    { network, routers: [{ node_name: "a", approved: false, offered: true, ...shown }] },
  ]);
  expect(await unsafeRoutes(b)).toEqual([]);
  const events = async () =>
    v
      .parse(
        v.array(Event),
        (await server.send("GET", "/api/org/acme/events/?limit=1000", { token: admin })).json,
      )
      .filter(({ type }) => type === "node.route_offered");
  expect(await events()).toMatchObject([{ subject: `node/${a.id}`, after: { networks: [network] } }]);
  expect((await send("POST", { network, via: [a.id] })).status).toBe(201);
  // A state that changes is no event; nor is an offer that is approved.
  expect((await checkin(a, { advertised: [{ ...offer, state: "down" }] })).status).toBe(200);
  expect(await list()).toMatchObject([{ routers: [{ approved: true, state: "down" }] }]);
  expect(await events()).toHaveLength(1);
  // The offer ends: what was approved stays, and is no longer offered.
  expect((await checkin(a)).status).toBe(200);
  expect(await list()).toMatchObject([{ routers: [{ approved: true, offered: false, state: null }] }]);
});

test("a node that offers other networks all the time does not fill the audit log", async () => {
  const { a } = nodes;
  for (let at = 0; at < 50; at++)
    expect((await checkin(a, { advertised: [{ network: `192.168.${at}.0/24` }] })).status).toBe(200);
  // What it offers now is shown.
  expect(await list()).toMatchObject([{ network: "192.168.49.0/24", routers: [{ offered: true }] }]);
  const events = await server.db.all("SELECT id FROM events WHERE type = 'node.route_offered'");
  expect(events).toHaveLength(20);
});

test("an offer that is no network, or too many of them, does not fail the check-in", async () => {
  const { a } = nodes;
  for (const advertised of [[{ network: "here" }], "x", Array.from({ length: 65 }, () => ({ network }))])
    expect((await checkin(a, { advertised })).status).toBe(200);
  expect(await list()).toEqual([]);
});

test("a rule names a network: its routers open that alone, and no group comes of it; policy files write it", async () => {
  const { a } = nodes;
  await checkin(a, { overlay_version: "1.12.0" });
  expect((await send("POST", { network, via: [a.id] })).status).toBe(201);
  const ofOrg = (method: string, at: string, body?: unknown) =>
    server.send(method, `/api/org/acme/${at}/`, { token: admin, ...(body === undefined ? {} : { body }) });
  const rule = { direction: "inbound", protocol: "tcp", ports: "443", peer: { any: true } };
  const target = { group: "network:192.168.7.0-24" };
  expect((await ofOrg("POST", "firewall_rules", { ...rule, target })).status).toBe(201);
  for (const wrong of [
    { ...rule, target: { group: "network:192.168.7.1-24" } },
    { ...rule, peer: target, target: { any: true } },
  ])
    expect((await ofOrg("POST", "firewall_rules", wrong)).status).toBe(400);
  const { text } = await server.send("GET", `/api/org/acme/nodes/${a.id}/config/`, { token: admin });
  expect(text.match(/local_cidr: \\?"192.168.7.0\/24/g)).toHaveLength(1);
  expect((await ofOrg("GET", "groups")).text).not.toContain("network:");
  const shown = await ofOrg("GET", "policy");
  expect(shown.text).toContain(`network:${network}`);
  const again = v.parse(v.object({ policy: v.string() }), shown.json);
  const plan = await ofOrg("POST", "policy/plan", { policy: again.policy });
  expect([plan.status, plan.text]).toEqual([200, expect.stringContaining('"is_empty":true')]);
});

test("metric and maintenance are no part of the policy: possible beside a policy file, and without a new version", async () => {
  const { a } = nodes;
  expect((await send("POST", { network, via: [a.id] })).status).toBe(201);
  const policy = async (method: string, body?: unknown) =>
    (
      await server.send(method, "/api/org/acme/policy/", {
        token: admin,
        ...(body === undefined ? {} : { body }),
      })
    ).json;
  await policy("PATCH", { by_file: true });
  const before = await policy("GET");
  expect((await send("PATCH", { network, maintenance: true })).status).toBe(200);
  expect((await send("POST", { network, via: [a.id], metric: 7 })).status).toBe(201);
  expect((await list())[0]?.routers).toMatchObject([{ metric: 7, maintenance: true }]);
  const refused = await send("POST", { network: "192.168.8.0/24", via: [a.id] });
  expect([refused.status, refused.text]).toEqual([409, expect.stringContaining("policy_by_file")]);
  expect((await send("DELETE", undefined, `?network=${encodeURIComponent(network)}`)).status).toBe(409);
  expect(await policy("GET")).toEqual(before);
});
