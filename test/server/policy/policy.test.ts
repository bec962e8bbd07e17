import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { firstRules } from "../../../src/server/policy/firewall.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { StoredRule } from "../../../src/server/policy/stored-rules.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import {
  checkinOf,
  downloadOf,
  registerNode,
  registrationToken,
  type RegisteredNode,
} from "../../support/nodes.ts";

let server: TestServer;
let org: Organization;
let admin: string;
let laptop: RegisteredNode;
let db: RegisteredNode;

beforeAll(async () => {
  server = await makeTestServer();
  org = await server.organization("acme");
  admin = await server.person("admin@example.org");
  await server.join(org, "admin@example.org", "admin");
  laptop = await registerNode(server, org, "laptop");
  db = await registerNode(server, org, "db");
  await server.send("PATCH", `/api/org/acme/nodes/${laptop.id}/`, {
    token: admin,
    body: { groups: ["staff"] },
  });
});
afterAll(() => server[Symbol.asyncDispose]());

const send = (method: string, rest: string, body?: unknown) =>
  server.send(method, `/api/org/acme/firewall_rules/${rest}`, { token: admin, body });
const good = {
  direction: "inbound",
  protocol: "tcp",
  ports: "443",
  peer: { any: true },
  target: { any: true },
};
const make = async (fields: Record<string, unknown>) =>
  v.parse(StoredRule, (await send("POST", "", { ...good, ...fields })).json);
const ask = async (protocol: string, port?: number, [from, to] = [laptop, db]) =>
  (await send("POST", "test/", { from: from.id, to: to.id, protocol, port })).json;
const Rendered = v.object({
  firewall: v.object({ inbound: v.array(v.unknown()), outbound: v.array(v.unknown()) }),
});
const rendered = async (node: RegisteredNode) =>
  v.parse(Rendered, Bun.YAML.parse(downloadOf(await node.download()).files["config.yml"])).firewall;

test("a new organization has two rules", async () => {
  const answer = await send("GET", "");
  expect(answer.headers.get("x-total-count")).toBe("2");
  expect(answer.json).toMatchObject(firstRules.map((rule) => ({ ...rule })));
  expect(await rendered(db)).toEqual({
    inbound: [{ port: "any", proto: "icmp", host: "any" }],
    outbound: [{ port: "any", proto: "any", host: "any" }],
  });
});

describe("a rule", () => {
  test("stores a network in the engine's form", async () => {
    const rule = await make({ peer: { cidr: "192.168.0.0/016" } });
    expect(rule.peer).toEqual({ cidr: "192.168.0.0/16" });
    expect((await make({ peer: { cidr: "FD01:0::/64" } })).peer).toEqual({ cidr: "fd01::/64" });
    for (const { id } of [rule, { id: rule.id + 1 }])
      expect((await send("DELETE", `${id}/`)).status).toBe(204);
  });

  test("applies to its target only, and raises the version of all nodes", async () => {
    const { config_version } = checkinOf(await db.checkin());
    const rule = await make({ ports: "5432", peer: { group: "staff" }, target: { node: db.id } });
    expect(checkinOf(await db.checkin({ config_version })).config_changed).toBe(true);
    expect((await rendered(db)).inbound).toContainEqual({ port: "5432", proto: "tcp", group: "staff" });
    expect((await rendered(laptop)).inbound).toHaveLength(1);
    expect(await ask("tcp", 5432)).toMatchObject({ allowed: true, rule_id: rule.id });
    expect(await ask("tcp", 5432, [db, laptop])).toMatchObject({ allowed: false, rule_id: null });
    expect(await ask("icmp")).toMatchObject({ allowed: true });
    expect((await send("DELETE", `${rule.id}/`)).status).toBe(204);
    expect(await ask("tcp", 5432)).toMatchObject({ allowed: false });
    expect((await send("GET", `${rule.id}/`)).status).toBe(404);
  });

  test("can be changed, but not to an invalid combination", async () => {
    const rule = await make({ ports: "22" });
    const changed = await send("PATCH", `${rule.id}/`, { ports: "2222", description: "ssh" });
    expect(changed.json).toMatchObject({ ...rule, ports: "2222", description: "ssh" });
    expect((await send("PATCH", `${rule.id}/`, { protocol: "icmp" })).status).toBe(400);
    expect((await send("PATCH", `${rule.id}/`, { id: 1 })).status).toBe(400);
    expect((await send("GET", "?search=SSH")).json).toMatchObject([{ id: rule.id }]);
    await send("DELETE", `${rule.id}/`);
  });

  test("is refused for a missing node, and permits nothing after its node was deleted", async () => {
    expect((await send("POST", "", { ...good, peer: { node: 987_654 } })).status).toBe(400);
    const guest = await registerNode(server, org, "guest");
    const rule = await make({ peer: { node: guest.id } });
    expect((await rendered(db)).inbound).toContainEqual({ port: "443", proto: "tcp", host: "guest" });
    await server.send("DELETE", `/api/org/acme/nodes/${guest.id}/`, { token: admin });
    expect(JSON.stringify(await rendered(db))).not.toContain("guest");
    // A new node with the same name does not inherit the right.
    const registration_token = await registrationToken(server, org, { node_name: "guest" });
    await registerNode(server, org, "guest", { registration_token });
    expect(JSON.stringify(await rendered(db))).not.toContain("guest");
    expect((await send("POST", "test/", { from: guest.id, to: db.id, protocol: "icmp" })).json).toMatchObject(
      {
        allowed: false,
        reason: expect.stringContaining("revoked"),
      },
    );
    await send("DELETE", `${rule.id}/`);
  });

  test("still applies after its node was renamed", async () => {
    const rule = await make({ peer: { node: laptop.id }, ports: "8080" });
    await server.send("PATCH", `/api/org/acme/nodes/${laptop.id}/`, {
      token: admin,
      body: { name: "notebook" },
    });
    expect((await rendered(db)).inbound).toContainEqual({ port: "8080", proto: "tcp", host: "notebook" });
    await send("DELETE", `${rule.id}/`);
  });

  test("creates its group", async () => {
    const rule = await make({ peer: { group: "brand-new" } });
    const groups = await server.send("GET", "/api/org/acme/groups/brand-new/", { token: admin });
    expect(groups.status).toBe(200);
    const refused = await server.send("DELETE", "/api/org/acme/groups/brand-new/", { token: admin });
    expect(refused.status).toBe(409);
    await send("DELETE", `${rule.id}/`);
  });
});

describe("subnets of a node", () => {
  const patch = (node: RegisteredNode, body: unknown) =>
    server.send("PATCH", `/api/org/acme/nodes/${node.id}/`, { token: admin, body });

  test("are in its certificate and become routes of the other nodes", async () => {
    const router = await registerNode(server, org, "router");
    expect((await patch(router, { subnets: ["192.168.9.0/24"] })).json).toMatchObject({
      subnets: ["192.168.9.0/24"],
    });
    const Routes = v.object({ tun: v.object({ unsafe_routes: v.array(v.unknown()) }) });
    const routes = async (node: RegisteredNode) =>
      v.parse(Routes, Bun.YAML.parse(downloadOf(await node.download()).files["config.yml"])).tun
        .unsafe_routes;
    expect(await routes(db)).toEqual([{ route: "192.168.9.0/24", via: router.ip }]);
    expect(await routes(router)).toEqual([]);
    // A router of the network has its own way there.
    expect((await patch(db, { subnets: ["192.168.9.0/24"] })).status).toBe(200);
    expect(await routes(db)).toEqual([]);
    expect((await patch(db, { subnets: [] })).status).toBe(200);
    await patch(router, { subnets: [] });
    expect(await routes(db)).toEqual([]);
  });

  test.each([
    ["0.0.0.0/0"],
    ["10.77.5.0/24"],
    ["10.0.0.0/8"],
    ["fd00::/64"],
    ["192.168.1.1/24"],
    ["nonsense"],
  ])("%s is refused", async (subnet) => expect((await patch(db, { subnets: [subnet] })).status).toBe(400));
});

test("an organization has 2,000 rules at most; rules beyond them from earlier versions still work", async () => {
  const { id } = await make({ ports: "8443" });
  const numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)";
  await server.db.write((tx) =>
    tx.run(
      `INSERT INTO firewall_rules (org_id, direction, protocol, ports, peer, target, created_at)
       ${numbers} SELECT CAST($1 AS INT), 'inbound', 'udp', '9', '{"any":true}', '{"any":true}', 1 FROM n`,
      [org.id],
    ),
  );
  const refused = await send("POST", "", good);
  expect([refused.status, refused.json]).toMatchObject([409, { code: "too_many_rules" }]);
  expect((await send("PATCH", `${id}/`, { ports: "8444" })).status).toBe(200);
  expect((await rendered(db)).inbound.length).toBeGreaterThan(2000);
  expect(await ask("tcp", 8444)).toMatchObject({ allowed: true, rule_id: id });
  await server.db.write((tx) => tx.run("DELETE FROM firewall_rules WHERE protocol = 'udp' AND ports = '9'"));
  // Rows that went without the API raise no version.
  expect((await send("DELETE", `${id}/`)).status).toBe(204);
  expect((await send("POST", "", good)).status).toBe(201);
});

test("a test of the rules sees a change at once", async () => {
  const { id } = await make({ ports: "9443" });
  expect(await ask("tcp", 9443)).toMatchObject({ allowed: true, rule_id: id });
  await send("PATCH", `${id}/`, { ports: "9444" });
  expect(await ask("tcp", 9443)).toMatchObject({ allowed: false });
  await send("DELETE", `${id}/`);
  expect(await ask("tcp", 9444)).toMatchObject({ allowed: false });
});
