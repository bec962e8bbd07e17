// The groups of nodes that groups at a provider give to the nodes of a user, with a real provider.

import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { Node } from "../../../src/protocol.ts";
import { Plan } from "../../../src/server/policy-files/answers.ts";
import type { Organization } from "../../../src/server/policy/organizations.ts";
import { registerNode } from "../../support/nodes.ts";
import { startIdentityProvider, type IdentityProvider } from "../../support/oidc.ts";
import {
  addProvider,
  callback,
  makeSignInServer,
  refusedWith,
  signInBy,
  whereTo,
} from "../../support/oidc-sign-in.ts";
import { makeAcme } from "../../support/people.ts";
import type { TestServer } from "../../support/server.ts";

const ada = { sub: "ada-1", email: "ada@example.org", email_verified: true };
const withGroups = (...groups: string[]) => ({ ...ada, realm: { roles: groups } });
let provider: IdentityProvider;
let server: TestServer;
let acme: Organization;
let owner: string;

beforeAll(async () => {
  provider = await startIdentityProvider([callback()]);
});
afterAll(() => provider[Symbol.asyncDispose]());
beforeEach(async () => {
  server = await makeSignInServer();
  ({ acme, owner } = await makeAcme(server));
});
afterEach(() => server[Symbol.asyncDispose]());

const send = (method: string, path: string, body?: object) =>
  server.send(method, `/api/org/acme/${path}`, { token: owner, ...(body === undefined ? {} : { body }) });
const groupsOf = async (id: number) => v.parse(Node, (await send("GET", `nodes/${id}/`)).json).groups;
const settings = {
  scopes: "openid email profile groups",
  groups_claim: "realm.roles",
  creates_users: true,
  roles: [{ group: "staff", organization: "acme", role: "member" as const }],
  node_groups: [
    { group: "db-admins", organization: "acme", node_group: "db" },
    { group: "staff", organization: "acme", node_group: "office" },
  ],
};
/** A node of Ada's with the group `lab`, which an administrator gave, and one of the organization. */
async function nodesOfAda() {
  const own = await registerNode(server, acme, "laptop");
  const other = await registerNode(server, acme, "server");
  const user = await server.db.get("SELECT email FROM users WHERE id > 1 AND password_hash = ''");
  await send("PATCH", `nodes/${own.id}/`, { groups: ["lab"] });
  await send("PATCH", `nodes/${other.id}/`, { groups: ["db"] });
  const moved = await send("POST", `nodes/${own.id}/transfer/`, { owner: String(user?.["email"]) });
  expect(moved.status).toBe(200);
  return { own, other };
}

test("a claim at a path gives groups to the user's nodes at each sign-in, and takes them", async () => {
  await addProvider(server, provider, settings);
  provider.person = withGroups("staff");
  expect(whereTo(await signInBy(server))).toEqual([303, "/console/"]);
  const { own, other } = await nodesOfAda();
  provider.person = withGroups("staff", "db-admins");
  await signInBy(server);
  expect(await groupsOf(own.id)).toEqual(["lab", "db", "office"]);
  expect(await groupsOf(other.id)).toEqual(["db"]);
  const version = (await own.download()).headers.get("etag");
  await signInBy(server);
  expect((await own.download()).headers.get("etag")).toBe(version);
  provider.person = withGroups("staff");
  await signInBy(server);
  expect(await groupsOf(own.id)).toEqual(["lab", "office"]);
  expect(await groupsOf(other.id)).toEqual(["db"]);
  provider.person = withGroups();
  await signInBy(server);
  expect(await groupsOf(own.id)).toEqual(["lab"]);
});

test("of an organization's provider too, also when the loss of the group refuses the sign-in", async () => {
  const roles = [{ group: "staff", organization: "acme", role: "member" as const }];
  const more = { ...settings, roles, creates_users: false };
  await addProvider(server, provider, more, { orgId: acme.id });
  provider.person = withGroups("staff", "db-admins");
  expect(whereTo(await signInBy(server))).toEqual([303, "/console/"]);
  const { own, other } = await nodesOfAda();
  await signInBy(server);
  expect(await groupsOf(own.id)).toEqual(["lab", "db", "office"]);
  provider.person = withGroups("db-admins");
  expect(whereTo(await signInBy(server))).toEqual(refusedWith("sign_in_refused"));
  expect(await groupsOf(own.id)).toEqual(["lab"]);
  expect(await groupsOf(other.id)).toEqual(["db"]);
});

test("a policy file leaves alone what a provider gave, and takes what an administrator gave", async () => {
  await addProvider(server, provider, settings);
  provider.person = withGroups("staff", "db-admins");
  await signInBy(server);
  const { own } = await nodesOfAda();
  await signInBy(server);
  const policy = "groups:\n  db: {members: []}\n  office: {members: []}\n  lab: {members: []}\n";
  const planned = await send("POST", "policy/plan/", { policy, prune: true });
  const { nodes } = v.parse(Plan, planned.json);
  expect(nodes.map(({ name, groups }) => [name, groups.remove])).toEqual([
    ["laptop", ["lab"]],
    ["server", ["db"]],
  ]);
  expect((await send("POST", "policy/apply/", { policy, prune: true })).status).toBe(200);
  expect(await groupsOf(own.id)).toEqual(["db", "office"]);
});

test.each([
  ["another organization", { group: "a", organization: "beta", node_group: "db" }],
  ["a reserved name", { group: "a", organization: "acme", node_group: "user:id.1" }],
])("a group of nodes of %s is refused", async (_, mapping) => {
  await server.organization("beta", "10.88.0.0/16");
  const { organization, ...own } = mapping;
  const body = { name: "x", issuer: provider.issuer, client_id: "a" };
  const sent = organization === "acme" ? own : mapping;
  const answer = await send("POST", "identity_providers/", { ...body, node_groups: [sent] });
  expect(answer.status).toBe(400);
});
