// Rights that end during a request: a slow body, a slow name server, a password that is being checked. A slow request
// must not keep a right.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { parseNetworks } from "../../src/server/http/edge.ts";
import { operator } from "../../src/server/audit/record.ts";
import { deleteOrganization } from "../../src/server/organizations/organizations.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { revokeToken } from "../../src/server/offboarding/left-access.ts";
import { changeRole, removeMember } from "../../src/server/offboarding/member-changes.ts";
import { createDrill } from "../../src/server/rollout/drills.ts";
import { createRollout } from "../../src/server/rollout/rollouts.ts";
import { refuseBesideRollout } from "../../src/server/rollout/refuse-beside.ts";
import { migrateVersions } from "../../src/server/rollout/version-migration.ts";
import type { Transaction } from "../../src/server/store/database.ts";
import { requireOwnFactor } from "../../src/server/users/factors/step-up.ts";
import { requireRole } from "../../src/server/users/late-rights.ts";
import { patchNode } from "../../src/server/nodes/nodes.ts";
import { patchOrganization } from "../../src/server/organizations/patch-organization.ts";
import { registerNode } from "../support/nodes.ts";
import { untested } from "../support/untested.ts";
import { queryNumber } from "../../src/server/store/table.ts";
import { createServiceToken } from "../../src/server/users/service-tokens.ts";
import { makeNumbered, membershipOf } from "../support/people.ts";
import { makeTestServer, type TestServer } from "../support/server.ts";
import { failureOf } from "./store/cases.ts";

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
  const networks = parseNetworks("", ["127.0.0.0/8"]);
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

test("who was demoted meanwhile begins no rollout and no drill, and changes no settings", async () => {
  await using own = await makeTestServer();
  const acme = await own.organization("acme");
  await own.person("mary@example.org");
  await own.join(acme, "mary@example.org", "member");
  const id = await queryNumber(own.db, "SELECT id AS n FROM users WHERE email = 'mary@example.org'");
  const actor = { kind: "person", id, ip: "192.0.2.7" } as const;
  const { services } = own.app;
  const wanted = { settings: { tun: { mtu: 1280 } }, groups: [], hours: [], watch_s: 60 };
  const node = await registerNode(own, acme, "web");
  const testing = { ...untested, admitIn: (tx: Transaction) => requireRole(tx, acme.id, actor) };
  const rules = { migrate: migrateVersions, requireOwnFactor, refuseBesideRollout, requireRole };
  const begun: Promise<unknown>[] = [
    patchOrganization(services, { ...acme, role: "member" }, { node_approval: "none" }, actor, rules),
    patchNode({ ...services, testing }, acme, node.id, { config_overrides: {} }, actor),
    createRollout(services, acme, wanted, actor),
    createDrill(services, acme, { kind: "control-plane-away", nodes: [], for_s: 60 }, actor),
  ];
  for (const each of begun) expect(await failureOf(each)).toMatchObject({ code: "permission_denied" });
});
