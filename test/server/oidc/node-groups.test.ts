// The groups of nodes that groups at a provider give to the nodes of a user, with a real provider.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { ErrorBody } from "../../../src/protocol/error-body.ts";
import { Node } from "../../../src/protocol/node.ts";
import { regroupOwned } from "../../../src/server/nodes/owner-groups.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { deleteProvider } from "../../../src/server/oidc/providers.ts";
import { Plan, Policy } from "../../../src/api/policy.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { certificateOf, downloadOf, registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { startIdentityProvider, type IdentityProvider } from "../../support/oidc.ts";
import {
  addProvider,
  callback,
  makeSignInServer,
  refusedWith,
  signInBy,
  whereTo,
} from "../../support/oidc-sign-in.ts";
import { makeAcme, membershipOf } from "../../support/people.ts";
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

test("settings and groups that an earlier version stored in another spelling of Unicode go on to work", async () => {
  const nfc = "r\u00e9seau";
  const [claim, tenant] = ["r\u00f4les", "soci\u00e9t\u00e9"];
  await addProvider(server, provider, {
    ...settings,
    groups_claim: `realm.${claim}`,
    required_groups: [nfc],
    tenant: `realm.${tenant}=${nfc}`,
    roles: [{ group: nfc, organization: "acme", role: "member" }],
    node_groups: [{ group: nfc, organization: "acme", node_group: "db" }],
  });
  const applied = await apply(policy().replace("On call / Ölands", nfc).replace("/eng/db", nfc));
  expect([applied.status, applied.text]).toEqual([200, expect.any(String)]);
  const inNfd = (table: string, ...columns: string[]) =>
    server.db.write(async (tx) => {
      for (const row of await tx.all(`SELECT id, ${columns.join(", ")} FROM ${table}`))
        for (const column of columns)
          await tx.run(`UPDATE ${table} SET ${column} = $1 WHERE id = $2`, [
            String(row[column]).normalize("NFD"),
            Number(row["id"]),
          ]);
    });
  await inNfd("identity_providers", "groups_claim", "required_groups", "tenant", "roles", "node_groups");
  await inNfd("provider_groups", "name");
  for (const form of ["NFC", "NFD"]) {
    const as = (text: string) => text.normalize(form);
    provider.person = { ...ada, realm: { [as(claim)]: [as(nfc)], [as(tenant)]: as(nfc) } };
    expect(whereTo(await signInBy(server))).toEqual([303, "/console/"]);
  }
  const { own } = await nodesOfAda();
  expect(await groupsOf(own.id)).toEqual(expect.arrayContaining(["lab"]));
  expect(whereTo(await signInBy(server))).toEqual([303, "/console/"]);
  expect(await certified(own)).toEqual(expect.arrayContaining(["db", "ops"]));
  // Until she signs in again, what the former version stored of her is enough.
  await inNfd("identities", "groups");
  await server.db.write((tx) => regroupOwned(tx, acme.id, server.clock.ms));
  expect(await certified(own)).toEqual(expect.arrayContaining(["db", "ops"]));
});

test("the nodes of a member who is removed lose what the provider gave", async () => {
  await addProvider(server, provider, settings);
  provider.person = withGroups("staff", "db-admins");
  await signInBy(server);
  const { own, other } = await nodesOfAda();
  await signInBy(server);
  expect(await certified(own)).toContain("db");
  const member = await membershipOf(server.db, acme, ada.email);
  expect((await send("DELETE", `members/${member}/`)).status).toBe(204);
  expect([await groupsOf(own.id), await groupsOf(other.id)]).toEqual([["lab"], ["db"]]);
  expect(await certified(own)).not.toContain("db");
  expect(await blockedSoon(own)).toBeGreaterThan(0);
});

test("a restored node has only what the provider says by then", async () => {
  await addProvider(server, provider, settings);
  provider.person = withGroups("staff", "db-admins");
  await signInBy(server);
  const { own } = await nodesOfAda();
  await signInBy(server);
  expect((await send("DELETE", `nodes/${own.id}/`)).status).toBe(204);
  provider.person = withGroups("staff");
  await signInBy(server);
  expect((await send("POST", `nodes/${own.id}/restore/`)).status).toBe(200);
  expect(await groupsOf(own.id)).toEqual(["lab", "office"]);
  expect(await certified(own)).not.toContain("db");
});

test("a node that is given to another user, or to the organization, loses what the provider gave its former owner", async () => {
  await addProvider(server, provider, settings);
  provider.person = withGroups("staff", "db-admins");
  await signInBy(server);
  const { own, other } = await nodesOfAda();
  await signInBy(server);
  expect(await groupsOf(own.id)).toEqual(["lab", "db", "office"]);
  const former = await certified(own);
  expect((await send("POST", `nodes/${own.id}/transfer/`, { owner: "owner@example.org" })).status).toBe(200);
  expect([former.includes("db"), await groupsOf(own.id)]).toEqual([true, ["lab"]]);
  expect(await certified(own)).not.toContain("db");
  expect(await blockedSoon(own)).toBeGreaterThan(0);
  // An administrator gave it, to a node that nobody owns.
  expect((await send("POST", `nodes/${other.id}/transfer/`, { owner: "owner@example.org" })).status).toBe(
    200,
  );
  expect(await groupsOf(other.id)).toEqual(["db"]);
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

const policy = (rest = "") => `groups:
  db: {}
  lab: {}
  ops: {members: ["idp:On call / Ölands"]}
rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: tcp, ports: 5432, peer: "idp:/eng/db", target: group:db}
${rest}`;
const plan = async (text: string) =>
  v.parse(Plan, (await send("POST", "policy/plan/", { policy: text, prune: true })).json);
const apply = (text: string) => send("POST", "policy/apply/", { policy: text, prune: true });
const certified = async (node: RegisteredNode) =>
  certificateOf(downloadOf(await node.download()), server.clock.ms).groups;
const ofProvider = async () => {
  const rows = await server.db.all("SELECT name, people FROM provider_groups ORDER BY name");
  return new Map(rows.map(({ name, people }) => [String(name), String(people)]));
};
const allowed = async (from: number, to: number) => {
  const packet = { from, to, protocol: "tcp", port: 5432 };
  const { json } = await send("POST", "firewall_rules/test/", packet);
  return v.parse(v.looseObject({ allowed: v.boolean() }), json).allowed;
};
const blockedSoon = async (node: RegisteredNode) => {
  const sql = `SELECT count(*) AS n FROM certificates WHERE node_id = $1 AND state = 'former' AND block_after IS NOT NULL`;
  return Number((await server.db.get(sql, [node.id]))?.["n"]);
};

describe.each([
  ["the installation", false],
  ["the organization", true],
])("groups at a provider of %s that a policy file names", (_, isOwn) => {
  const own = { ...settings, node_groups: [] };

  async function signedIn(...groups: string[]) {
    await addProvider(server, provider, own, { orgId: isOwn ? acme.id : null });
    provider.person = withGroups("staff", ...groups);
    expect(whereTo(await signInBy(server))).toEqual([303, "/console/"]);
    return nodesOfAda();
  }

  test("are in plans, certificates and the explainer, follow each sign-in, and are shown as they are written", async () => {
    const { own: laptop, other } = await signedIn("/eng/db");
    const made = await plan(policy());
    expect(made.rules.create).toContainEqual(expect.objectContaining({ peer: "idp:/eng/db" }));
    expect(made.groups.members).toEqual([{ group: "ops", add: ["idp:On call / Ölands"], remove: [] }]);
    expect(made.nodes).toContainEqual(
      expect.objectContaining({ name: "laptop", groups: { add: ["idp:/eng/db"], remove: [] } }),
    );
    expect(made.access.pairs).toContainEqual(
      expect.objectContaining({ from: { id: laptop.id, name: "laptop" }, gains: ["tcp/5432"] }),
    );
    expect((await apply(policy())).status).toBe(200);
    const named = await ofProvider();
    const [eng = "", onCall = ""] = [named.get("/eng/db"), named.get("On call / Ölands")];
    expect(await certified(laptop)).toContain(eng);
    expect(await certified(laptop)).not.toContain("ops");
    expect(await allowed(laptop.id, other.id)).toBe(true);
    expect(downloadOf(await other.download()).files["config.yml"]).toContain(`group: "${eng}"`);
    expect(await plan(policy())).toMatchObject({ is_empty: true, kept: [] });

    provider.person = withGroups("staff", "On call / Ölands");
    await signInBy(server);
    expect((await certified(laptop)).slice(1, 3)).toEqual([onCall, "ops"]);
    expect(await allowed(laptop.id, other.id)).toBe(false);
    expect(await blockedSoon(laptop)).toBeGreaterThan(0);
    // What the other ones hold is not the business of this provider.
    expect(await certified(other)).toEqual(["db"]);
    const shown = v.parse(Policy, (await send("GET", "policy/")).json);
    expect(shown).toMatchObject({ source: "file", policy: policy() });
    expect((await apply("rules: []\n")).status).toBe(200);
    const state = v.parse(Policy, (await send("GET", "policy/")).json);
    expect(state.policy).not.toContain("/eng/db");
    expect([...(await ofProvider()).keys()]).toEqual(["On call / Ölands"]);
    const byHand = {
      direction: "inbound",
      protocol: "udp",
      ports: "any",
      peer: { group: onCall },
      target: { any: true },
    };
    expect((await send("POST", "firewall_rules/", byHand)).status).toBe(201);
    const drifted = v.parse(Policy, (await send("GET", "policy/")).json);
    expect([drifted.source, drifted.policy.split("idp:On call / Ölands").length]).toEqual(["state", 3]);
    expect(await plan(drifted.policy)).toMatchObject({ is_empty: true });
    const listed = await send("GET", "provider_groups/");
    expect(listed.json).toEqual([{ group: onCall, name: "On call / Ölands", word: "idp:On call / Ölands" }]);
  });

  test("tell a member who is in them only once the policy names them", async () => {
    const { own: laptop } = await signedIn("/eng/db");
    const token = await server.person("mia@example.org");
    await server.join(acme, "mia@example.org", "member");
    const asks = (path: string, text: string) =>
      server.send("POST", `/api/org/acme/policy/${path}/`, { token, body: { policy: text } });
    const inGroup = 'groups: {spies: {members: ["idp:/eng/db"]}}';
    const tested = 'tests: [{accept: {from: "idp:/eng/db", to: any}}]';
    const refused = [await asks("plan", inGroup), await asks("test", tested), await asks("plan", tested)];
    for (const { status, text } of refused) {
      expect([status, text]).toEqual([
        403,
        expect.stringContaining("only administrators may see who is in it"),
      ]);
      expect(text).not.toContain(laptop.name);
    }
    // What the policy names already decides about everybody, and everybody may read it.
    expect((await apply(policy())).status).toBe(200);
    expect((await asks("plan", inGroup)).status).toBe(200);
    expect((await asks("test", tested)).status).toBe(200);
  });

  test("are named by a rule that is made by hand, without a file", async () => {
    const { own: laptop, other } = await signedIn("/eng/db");
    const rule = { direction: "inbound", protocol: "tcp", ports: "5432", target: { group: "db" } };
    const made = await send("POST", "firewall_rules/", { ...rule, peer: { idp: "/eng/db" } });
    expect([made.status, made.text]).toEqual([201, made.text]);
    const [group = ""] = (await ofProvider()).values();
    expect(made.json).toMatchObject({ peer: { group } });
    expect(await certified(laptop)).toContain(group);
    expect(await allowed(laptop.id, other.id)).toBe(true);
    const { id } = v.parse(v.looseObject({ id: v.number() }), made.json);
    const patched = await send("PATCH", `firewall_rules/${id}/`, { peer: { idp: "On call" } });
    expect(patched.status).toBe(200);
    expect(await allowed(laptop.id, other.id)).toBe(false);
    // The policy does not name it any more.
    expect([...(await ofProvider()).keys()]).toEqual(["On call"]);
    expect(await certified(laptop)).not.toContain(group);
    expect(await blockedSoon(laptop)).toBeGreaterThan(0);
    expect((await send("PATCH", `firewall_rules/${id}/`, { peer: { idp: "/eng/db" } })).status).toBe(200);
    expect(await allowed(laptop.id, other.id)).toBe(true);
    provider.person = withGroups("staff");
    await signInBy(server);
    expect(await allowed(laptop.id, other.id)).toBe(false);
    expect(await certified(laptop)).not.toContain(group);
    expect((await send("POST", "firewall_rules/", { ...rule, peer: { idp: " x" } })).status).toBe(400);
    // Another rule names it, then a test, then nothing.
    const second = await send("POST", "firewall_rules/", { ...rule, ports: "80", peer: { idp: "/eng/db" } });
    expect(second.status).toBe(201);
    const tested = 'tests: [{deny: {from: "idp:/eng/db", to: group:db, protocol: udp}}]';
    expect((await send("POST", "policy/apply/", { policy: tested })).status).toBe(200);
    // The console sends the tests back as they are listed: one with `idp:#…` would be left out, and deleted.
    const { tests } = v.parse(Policy, (await send("GET", "policy/")).json);
    expect(tests.list).toMatchObject([{ from: "idp:/eng/db", to: "group:db", passes: true }]);
    const { id: last } = v.parse(v.looseObject({ id: v.number() }), second.json);
    for (const [each, named] of [
      [id, ["/eng/db"]],
      [last, ["/eng/db"]],
    ] as const) {
      expect((await send("DELETE", `firewall_rules/${each}/`)).status).toBe(204);
      expect([...(await ofProvider()).keys()]).toEqual([...named]);
    }
    expect((await send("POST", "policy/apply/", { policy: "tests: []" })).status).toBe(200);
    expect(await ofProvider()).toEqual(new Map());
    const third = await send("POST", "firewall_rules/", { ...rule, peer: { idp: "/eng/db" } });
    const { id: only } = v.parse(v.looseObject({ id: v.number() }), third.json);
    expect((await send("DELETE", `firewall_rules/${only}/`)).status).toBe(204);
    expect(await ofProvider()).toEqual(new Map());
  });

  test("end with the user's membership, and with the provider", async () => {
    const { own: laptop } = await signedIn("/eng/db", "On call / Ölands");
    expect((await apply(policy())).status).toBe(200);
    expect(await certified(laptop)).toContain("ops");
    provider.person = withGroups("/eng/db", "On call / Ölands");
    await signInBy(server);
    const isMember = (await server.db.get("SELECT id FROM memberships WHERE role = 'member'")) !== undefined;
    expect([isMember, (await certified(laptop)).includes("ops")]).toEqual([isOwn, isOwn]);
    const id = Number((await server.db.get("SELECT id FROM identity_providers"))?.["id"]);
    const scope = { orgId: isOwn ? acme.id : null };
    await deleteProvider(server.app.services, scope, id, operator);
    expect((await certified(laptop)).filter((group) => group !== "lab")).toEqual([
      expect.stringMatching(/^user:id\.\d+$/),
    ]);
    expect(await ofProvider()).toEqual(new Map());
    const state = v.parse(Policy, (await send("GET", "policy/")).json);
    expect(state.policy).toContain("# Left out, because a node or member that it names is gone: rule");
  });
});

test("a policy that names a provider's group is refused where the provider is not clear", async () => {
  const faultOf = async (text: string) => {
    const answer = await send("POST", "policy/plan/", { policy: text });
    return v.parse(v.looseObject(ErrorBody.entries), answer.json).detail;
  };
  const rule = (peer: string) => `rules:\n  - {peer: "${peer}", target: any}\n`;
  expect(await faultOf(rule("idp:x"))).toContain("There is no provider of identities");
  const any = { direction: "inbound", protocol: "any", ports: "any", target: { any: true } };
  const byName = async (idp: string) => {
    const { json } = await send("POST", "firewall_rules/", { ...any, peer: { idp } });
    return v.parse(v.looseObject(ErrorBody.entries), json).detail;
  };
  expect(await byName("x")).toContain("There is no provider of identities");
  await addProvider(server, provider, settings);
  await addProvider(server, provider, { ...settings, name: "Second" }, { orgId: acme.id });
  expect(await faultOf(rule("idp:x"))).toContain("write idp:PROVIDER/GROUP");
  expect(await byName("x")).toContain("write idp:PROVIDER/GROUP");
  expect((await plan(rule("idp:Second/x"))).rules.create).toMatchObject([{ peer: "idp:Second/x" }]);
  expect(await faultOf(rule("idp: x"))).toContain("Enter idp:GROUP");
  const strange = { group: `idp:1.${"0".repeat(32)}` };
  const byHand = {
    direction: "inbound",
    protocol: "any",
    ports: "any",
    peer: strange,
    target: { any: true },
  };
  expect((await send("POST", "firewall_rules/", byHand)).status).toBe(400);
  const many = Array.from({ length: 65 }, (_, at) => `  - {peer: "idp:Second/${at}", target: any}`).join(
    "\n",
  );
  expect(await faultOf(`rules:\n${many}\n`)).toContain(
    "65 groups of providers of identities; the maximum is 64",
  );
});
