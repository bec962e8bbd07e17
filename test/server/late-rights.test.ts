// Rights that end during a request: a slow body, a slow name server, a password that is being checked, a lock. A slow request
// must not keep a right.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { networksOfFlag } from "../../src/server/http/edge.ts";
import { operator } from "../../src/server/audit/record.ts";
import { deleteOrganization } from "../../src/server/organizations/organizations.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { revokeToken } from "../../src/server/offboarding/end-access.ts";
import { changeRole, removeMember } from "../../src/server/offboarding/member-changes.ts";
import { createServiceToken } from "../../src/server/users/service-tokens.ts";
import { memberships } from "../../src/server/store/tables/organizations.ts";
import { users } from "../../src/server/store/tables/users.ts";
import { countOf, registerNode } from "../support/nodes.ts";
import { makeNumbered, membershipOf } from "../support/people.ts";
import { makeTestServer, type TestServer } from "../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;

beforeAll(async () => {
  server = await makeTestServer();
  ({ org, admin } = await makeNumbered(server, 1));
});
afterAll(() => server[Symbol.asyncDispose]());

/** Creates a group with a slow body, and runs `meanwhile` before the body ends. Returns the status. */
async function slowly(name: string, token: string, meanwhile: () => Promise<unknown>): Promise<number> {
  const body = new ReadableStream<string>({
    async start(controller) {
      controller.enqueue('{"name":');
      // Waits until the caller is admitted.
      await Bun.sleep(20);
      await meanwhile();
      await Bun.sleep(100);
      controller.enqueue(`"${name}"}`);
      controller.close();
    },
  }).pipeThrough(new TextEncoderStream());
  const request = new Request(`https://control.example/api/org/${org.slug}/groups/`, {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body,
  });
  return (await server.app.fetch(request, { addressOf: () => "192.0.2.7" })).status;
}

test("a request with a slow body is executed only if the caller still has the right at its end", async () => {
  const { services } = server.app;
  const by = { role: "owner", actor: operator } as const;
  const maker = { userId: null, actor: operator };
  const make = () => createServiceToken(services, org, { name: "ci", role: "admin" }, maker);
  const [revoked, orphan] = [await make(), await make()];
  const id = await membershipOf(server.db, org, "admin-1@example.org");
  expect(await slowly("taken", orphan.token, async () => undefined)).toBe(201);
  expect(await slowly("demoted", admin, () => changeRole(services, org, id, "member", by))).toBe(403);
  await changeRole(services, org, id, "admin", by);
  expect(await slowly("removed", admin, () => removeMember(services, org, id, by))).toBe(404);
  const revoke = () => revokeToken(services, org, "service_token", revoked.id, operator);
  expect(await slowly("revoked", revoked.token, revoke)).toBe(401);
  expect(await slowly("deleted", orphan.token, () => deleteOrganization(services, org, operator))).toBe(401);
  expect(await server.db.all("SELECT name FROM node_groups")).toEqual([{ name: "taken" }]);
});

test("a slow name server does not let a removed caller create a webhook", async () => {
  let meanwhile = async (): Promise<unknown> => undefined;
  const lookup = async () => {
    await meanwhile();
    return ["127.0.0.1"];
  };
  const networks = networksOfFlag("", ["127.0.0.0/8"]);
  await using slow = await makeTestServer({ webhookNetworks: networks, network: { lookup } });
  const acme = await slow.organization("acme");
  const { services } = slow.app;
  const make = () =>
    createServiceToken(services, acme, { name: "ci", role: "admin" }, { userId: null, actor: operator });
  const [first, second] = [await make(), await make()];
  const send = (method: string, rest: string, { token }: { token: string }) =>
    slow.send(method, `/api/org/acme/webhooks/${rest}`, { token, body: { url: "http://hooks.example/" } });
  expect((await send("POST", "", second)).status).toBe(201);
  meanwhile = () => revokeToken(services, acme, "service_token", first.id, operator);
  expect((await send("POST", "", first)).status).toBe(401);
  meanwhile = () => revokeToken(services, acme, "service_token", second.id, operator);
  expect((await send("PATCH", "1/", second)).status).toBe(401);
  const written = await slow.db.all("SELECT type FROM events WHERE type LIKE 'webhook.%'");
  expect(written).toEqual([{ type: "webhook.created" }]);
});

const rule = {
  direction: "inbound",
  protocol: "udp",
  ports: "4",
  peer: { any: true },
  target: { any: true },
};
/** By the node that they name. */
const edits: Record<string, (node: number) => { method?: string; path: string; body: object }> = {
  "a rule": () => ({ path: "firewall_rules/", body: rule }),
  "a group": () => ({ path: "groups/", body: { name: "web" } }),
  "an alias": (node) => ({ path: "names/", body: { name: "shop", node } }),
  "a route": (node) => ({ method: "PATCH", path: `nodes/${node}/`, body: { subnets: ["192.168.7.0/24"] } }),
  "the end of an alias": () => ({ method: "DELETE", path: "names/1/", body: {} }),
  "a router of a network": (node) => ({ path: "routes/", body: { network: "192.168.8.0/24", via: [node] } }),
  "the end of a token": () => ({ method: "DELETE", path: "registration_tokens/1/", body: {} }),
  "a setting": () => ({ method: "PATCH", path: "", body: { flows: true } }),
  "a node": () => ({ path: "nodes/", body: { name: "other" } }),
  "a rotation": () => ({ path: "ca/rotate/", body: { action: "start" } }),
  "a drill": () => ({ path: "drills/", body: { kind: "control-plane-away", for_s: 60 } }),
  "a rollout": () => ({ path: "rollouts/", body: { engine: "1.12.0" } }),
  "the end of a node": (node) => ({ method: "DELETE", path: `nodes/${node}/`, body: {} }),
  "a certificate": (node) => ({ path: `nodes/${node}/renew_cert/`, body: {} }),
  "the organization": () => ({ method: "DELETE", path: "", body: {} }),
  "the name of a node": (node) => ({ method: "PATCH", path: `nodes/${node}/`, body: { name: "other" } }),
};
test.each(Object.entries(edits))("rights that end while an edit waits for the lock: %s", async (_, edit) => {
  await using busy = await makeTestServer();
  const acme = await busy.organization("acme");
  const token = await busy.person("ada@example.org");
  await busy.join(acme, "ada@example.org", "owner");
  const node = await registerNode(busy, acme, "router");
  const alias = { name: "cache", node: node.id };
  expect((await busy.send("POST", "/api/org/acme/names/", { token, body: alias })).status).toBe(201);
  const written = () => countOf(busy, "SELECT count(*) AS n FROM events WHERE org_id = $1", acme.id);
  const before = await written();
  const id = await membershipOf(busy.db, acme, "ada@example.org");
  const { db } = busy.app.services;
  const { writeFor } = db;
  let removal: Promise<unknown> = Promise.resolve();
  // The edit was admitted, and waits behind the removal.
  db.writeFor = (concern, work) => {
    db.writeFor = writeFor;
    removal = writeFor({ org: acme.id }, (tx) => memberships.delete(tx, { id }));
    return writeFor(concern, work);
  };
  try {
    const { method = "POST", path, body } = edit(node.id);
    const answer = await busy.send(method, `/api/org/acme/${path}`, { token, body });
    expect(answer.json).toMatchObject({ code: "permission_denied" });
    expect(await written()).toBe(before);
  } finally {
    db.writeFor = writeFor;
    await removal;
  }
});

test.each([
  ["an organization", "/api/org/", { slug: "acme", network: "10.77.0.0/16" }],
  ["a confirmed clock", "/api/servers/clock/", { time: "now" }],
])("rights of staff that end while a request waits: %s", async (_, path, body) => {
  await using busy = await makeTestServer();
  const token = await busy.person("root@example.org", { isStaff: true });
  const written = () => countOf(busy, "SELECT count(*) AS n FROM events WHERE at > $1", 0);
  const before = await written();
  const { db } = busy.app.services;
  const { write } = db;
  let demotion: Promise<unknown> = Promise.resolve();
  db.write = (work) => {
    db.write = write;
    demotion = write((tx) => users.update(tx, { email: "root@example.org" }, { isStaff: false }));
    return write(work);
  };
  try {
    const time = new Date(busy.clock.ms).toISOString();
    const answer = await busy.send("POST", path, { token, body: "time" in body ? { time } : body });
    expect(answer.json).toMatchObject({ code: "permission_denied" });
    expect(await written()).toBe(before);
  } finally {
    db.write = write;
    await demotion;
  }
});
