// Subnets that would cut all nodes off from their lighthouses or from the control plane are refused.

import { afterEach, beforeEach, expect, test } from "bun:test";
import type { Organization } from "../../../src/api/organizations.ts";
import { nodes } from "../../../src/server/store/tables/nodes.ts";
import { rememberPublicUrl } from "../../../src/server/store/meta.ts";
import {
  makeKeys,
  registerNode,
  registrationToken,
  sendRegistration,
  type RegisteredNode,
} from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;
let db: RegisteredNode;

beforeEach(async () => {
  server = await makeTestServer();
  org = await server.organization("acme");
  admin = await server.person("admin@acme.example");
  await server.join(org, "admin@acme.example", "admin");
  db = await registerNode(server, org, "db");
});

afterEach(() => server[Symbol.asyncDispose]());

const patch = (node: RegisteredNode, body: unknown) =>
  server.send("PATCH", `/api/org/acme/nodes/${node.id}/`, { token: admin, body });

test("subnets that hold the public address of a lighthouse or relay are refused, in either order", async () => {
  const token = { registration_token: await registrationToken(server, org, { is_lighthouse: true }) };
  const hub = await registerNode(server, org, "hub", {
    ...token,
    is_lighthouse: true,
    public_ip: "192.0.2.30",
  });
  for (const subnet of ["192.0.2.30/32", "192.0.2.0/24", "192.0.0.0/16"]) {
    const { status, text } = await patch(db, { subnets: [subnet] });
    expect([status, text]).toEqual([409, expect.stringContaining("192.0.2.30, the public address of hub")]);
  }
  const relay = await registerNode(server, org, "relay");
  expect((await patch(relay, { public_ip: "2001:db8::7" })).status).toBe(200);
  // A plain node's address matters only when it becomes a hub.
  expect((await patch(db, { subnets: ["192.0.3.0/24", "2001:db8::/64"] })).status).toBe(400);
  expect((await patch(db, { subnets: ["192.0.3.0/24"] })).status).toBe(200);
  expect((await patch(hub, { public_ip: "192.0.3.30" })).status).toBe(409);
  expect((await patch(relay, { public_ip: "192.0.3.31" })).status).toBe(200);
  expect((await patch(relay, { is_relay: true })).status).toBe(409);
  expect((await patch(hub, { name: "hub-1" })).status).toBe(200);
  const late = {
    ...(await makeKeys("late")),
    name: "late",
    is_lighthouse: true,
    public_ip: "192.0.3.32",
    ...token,
  };
  expect((await sendRegistration(server, "acme", late)).status).toBe(409);
  const made = { name: "made", is_relay: true, public_ip: "192.0.3.33" };
  expect((await server.send("POST", "/api/org/acme/nodes/", { token: admin, body: made })).status).toBe(409);
  await server.send("DELETE", `/api/org/acme/nodes/${hub.id}/`, { token: admin });
  expect((await patch(db, { subnets: ["192.0.2.0/24"] })).status).toBe(200);
  const restored = await server.send("POST", `/api/org/acme/nodes/${hub.id}/restore/`, {
    token: admin,
    body: {},
  });
  expect(restored.status).toBe(409);
});

test("subnets that hold the address of the control plane are refused", async () => {
  await rememberPublicUrl(server.db, { publicUrl: "https://[2001:db8::9]:8420" });
  await rememberPublicUrl(server.db, { publicUrl: "https://198.51.100.9:8420" });
  const { status, text } = await patch(db, { subnets: ["198.51.100.0/24"] });
  expect([status, text]).toEqual([400, expect.stringContaining("the address of this control plane")]);
  expect((await patch(db, { subnets: ["198.51.101.0/24"] })).status).toBe(200);
});

test("networks that every machine treats in its own way are refused; stored ones stay", async () => {
  for (const subnet of [
    "169.254.0.0/16",
    "169.254.169.254/32",
    "224.0.0.0/4",
    "0.0.0.0/8",
    "255.255.255.255/32",
  ]) {
    const { status, text } = await patch(db, { subnets: [subnet] });
    expect([status, text]).toEqual([400, expect.stringContaining("never routed through an overlay")]);
  }
  // Of an earlier version.
  const stored = ["169.254.7.0/24"];
  await server.db.write((tx) => nodes.update(tx, { id: db.id }, { subnets: stored }));
  expect((await patch(db, { subnets: [...stored, "192.168.7.0/24"] })).status).toBe(200);
  expect((await patch(db, { subnets: ["192.168.7.0/24"] })).status).toBe(200);
  expect((await patch(db, { subnets: stored })).status).toBe(400);
});
