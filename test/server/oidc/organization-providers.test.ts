// Providers of identities of an organization, with a real one: its users are valid in that organization only, whatever the
// provider says about them.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { operator } from "../../../src/server/audit/record.ts";
import { setPassword } from "../../../src/server/users/sign-in/set-password.ts";
import { ownPage, signInBrowser } from "../../support/browser-session.ts";
import { startIdentityProvider, type IdentityProvider } from "../../support/oidc.ts";
import {
  addProvider,
  begin,
  callback,
  comeBack,
  loopback,
  refusedWith,
  sessionIn,
  signInBy,
  whereTo,
} from "../../support/oidc-sign-in.ts";
import { signInAt } from "../../support/oidc.ts";
import { makeAcme, membershipOf } from "../../support/people.ts";
import { makeTestServer, password, type TestServer } from "../../support/server.ts";

const ada = { sub: "ada-1", email: "Ada@Example.org", email_verified: true, name: "Ada Lovelace" };
const signedIn = [303, "/console/"];
const refused = refusedWith("sign_in_refused");
const Id = v.object({ id: v.number() });

let provider: IdentityProvider;
let server: TestServer;
let owner: string;
let texts: Map<string, string[]>;

beforeAll(async () => {
  provider = await startIdentityProvider([1, 2, 3].map(callback));
});
afterAll(() => provider[Symbol.asyncDispose]());
beforeEach(async () => {
  texts = new Map();
  server = await makeTestServer({
    ...loopback,
    network: { lookupTexts: async (name) => texts.get(name) ?? [] },
  });
  server.clock.ms = Date.now();
  ({ owner } = await makeAcme(server));
  await server.organization("beta", "10.88.0.0/16");
  await server.person("beta@example.org");
  const beta = await server.db.get("SELECT id FROM organizations WHERE slug = 'beta'");
  await server.join({ id: Number(beta?.["id"]), slug: "beta" } as never, "beta@example.org", "owner");
  provider.person = ada;
});
afterEach(() => server[Symbol.asyncDispose]());

const betaOwner = async () => (await signInBrowser(server, "beta@example.org")).send;
const company = (settings: object = {}) => ({
  name: "Company",
  creates_users: true,
  issuer: provider.issuer,
  client_id: provider.clientId,
  client_secret: provider.clientSecret,
  ...settings,
});
/** Adds a provider to acme. */
const add = async (settings: object = {}) => {
  const body = company({ scopes: "openid email profile groups", ...settings });
  const answer = await server.send("POST", "/api/org/acme/identity_providers/", { token: owner, body });
  expect(answer.status).toBe(201);
  return v.parse(Id, answer.json).id;
};
const addToBeta = async () => {
  const answer = await (await betaOwner())("POST", "/api/org/beta/identity_providers/", { body: company() });
  expect(answer.status).toBe(201);
};
const signIn = (id = 1) => signInBy(server, { provider: id });
const whoAmI = async (id = 1) =>
  v.parse(
    v.object({ id: v.number(), email: v.string(), is_staff: v.boolean() }),
    (await sessionIn(server, await signIn(id)).send("GET", "/api/user/")).json,
  );
const claim = async (domain: string) => {
  const answer = await server.send("POST", "/api/org/acme/domains/", { token: owner, body: { domain } });
  return v.parse(
    v.looseObject({ id: v.number(), record_name: v.string(), record_text: v.string() }),
    answer.json,
  );
};
const check = (id: number) => server.send("POST", `/api/org/acme/domains/${id}/check/`, { token: owner });
const verify = async (domain: string) => {
  const { id, record_name, record_text } = await claim(domain);
  texts.set(record_name, ["v=spf1 -all", record_text]);
  expect((await check(id)).status).toBe(200);
  return id;
};

describe("a user of an organization's provider", () => {
  test("is a member there, and nobody anywhere else", async () => {
    await add();
    const browser = sessionIn(server, await signIn());
    const me = (await browser.send("GET", "/api/user/")).json;
    expect(me).toMatchObject({ email: expect.stringMatching(/^ada-lovelace@acme;\d+$/), is_staff: false });
    expect((await browser.send("GET", "/api/org/acme/")).json).toMatchObject({ role: "member" });
    expect((await browser.send("GET", "/api/org/")).json).toEqual([
      expect.objectContaining({ slug: "acme" }),
    ]);
    expect((await browser.send("GET", "/api/org/beta/")).status).toBe(404);
    const body = { slug: "mine", network: "10.99.0.0/16" };
    expect((await browser.send("POST", "/api/org/", { body })).status).toBe(403);
  });

  test("has no rights elsewhere, even if a row said so", async () => {
    await add();
    const { id } = await whoAmI();
    await server.db.write(async (tx) => {
      await tx.run("UPDATE users SET is_staff = 1 WHERE id = $1", [id]);
      await tx.run(
        "INSERT INTO memberships (org_id, email, user_id, role, created_at) VALUES (2, 'x', $1, 'owner', 0)",
        [id],
      );
      await tx.notify("auth", `user ${id}`);
    });
    const browser = sessionIn(server, await signIn());
    expect((await browser.send("GET", "/api/org/beta/")).status).toBe(404);
    expect((await browser.send("GET", "/api/users/")).status).toBe(403);
    expect((await browser.send("GET", "/api/user/")).json).toMatchObject({ is_staff: false });
  });

  test("is the same at the next sign-in, and another for another subject with the same address", async () => {
    await verify("example.org");
    await add();
    const first = await whoAmI();
    expect(await whoAmI()).toEqual(first);
    provider.person = { ...ada, sub: "ada-2" };
    const second = await whoAmI();
    expect([second.id === first.id, second.email]).toEqual([false, `ada@example.org;${second.id}`]);
  });

  test("never is the user of the installation's provider with the same issuer, or of another organization's", async () => {
    await addProvider(server, provider, { creates_users: true });
    const installed = await whoAmI(1);
    await add();
    await addToBeta();
    const inAcme = await whoAmI(2);
    const inBeta = await whoAmI(3);
    expect(new Set([installed.id, inAcme.id, inBeta.id]).size).toBe(3);
    expect(installed.email).toBe("ada@example.org");
    // In the other order too: what an organization saw first belongs to it alone.
    provider.person = { ...ada, sub: "bob", email: "bob@example.org" };
    const bob = await whoAmI(2);
    expect(await whoAmI(1)).toMatchObject({ email: "bob@example.org" });
    expect((await whoAmI(1)).id).not.toBe(bob.id);
    const browser = sessionIn(server, await signIn(3));
    expect((await browser.send("GET", "/api/org/acme/")).status).toBe(404);
  });

  test("has no other way in: no password, no passkey alone, no linked identity", async () => {
    await add();
    await addProvider(server, provider, { name: "Installed", creates_users: true });
    const { id, email } = await whoAmI();
    expect(setPassword(server.app.services, id, password, operator)).rejects.toMatchObject({
      code: "conflict",
    });
    await server.db.write((tx) =>
      tx.run(
        "UPDATE users SET password_hash = (SELECT password_hash FROM users WHERE id = 1) WHERE id = $1",
        [id],
      ),
    );
    expect((await server.send("POST", "/api/token/", { body: { email, password } })).status).toBe(401);
    await server.db.write((tx) => tx.run("UPDATE users SET password_hash = '' WHERE id = $1", [id]));
    const browser = sessionIn(server, await signIn());
    const begun = await browser.send("POST", "/api/user/identities/", { body: { provider: 2 } });
    const { url } = v.parse(v.object({ url: v.string() }), begun.json);
    const cookie = begun.headers.getSetCookie().find((each) => each.startsWith("__Host-oidc="));
    const back = await comeBack(server, await signInAt(url), {
      "__Host-oidc": /=([^;]*)/.exec(cookie ?? "")?.[1] ?? "",
      "__Host-session": browser.cookie,
    });
    expect(whereTo(back)).toEqual(refusedWith("conflict"));
  });

  test("cannot be linked to a user of the installation, whose rights the provider would get", async () => {
    await add();
    const browser = await signInBrowser(server);
    const body = { provider: 1, current_password: password };
    expect((await browser.send("POST", "/api/user/identities/", { body })).status).toBe(404);
  });

  test("cannot become an owner, by a person neither", async () => {
    await add();
    const { email } = await whoAmI();
    const acme = { id: 1 };
    const member = await membershipOf(server.db, acme, email);
    const answer = await server.send("PATCH", `/api/org/acme/members/${member}/`, {
      token: owner,
      body: { role: "owner", owner_id: (await whoAmI()).id },
    });
    expect([answer.status, answer.json]).toEqual([409, expect.objectContaining({ code: "conflict" })]);
  });

  test("loses the session when the provider is deleted, and the organization's owner still gets in", async () => {
    const id = await add();
    const browser = sessionIn(server, await signIn());
    const path = `/api/org/acme/identity_providers/${id}/`;
    expect((await server.send("DELETE", path, { token: owner })).status).toBe(204);
    expect((await browser.send("GET", "/api/user/")).status).toBe(401);
    expect((await (await signInBrowser(server)).send("GET", "/api/org/acme/")).status).toBe(200);
  });

  test("cannot sign in after the organization was deleted", async () => {
    await add();
    await signIn();
    await server.send("DELETE", "/api/org/acme/", { token: owner });
    expect(whereTo(await signIn())).toEqual(refused);
  });
});

describe("an address", () => {
  test("counts only in a domain that the organization has verified", async () => {
    await add();
    const called = /^ada-lovelace@acme;/;
    expect((await whoAmI()).email).toMatch(called);
    const { id, record_name, record_text } = await claim("example.org");
    expect((await whoAmI()).email).toMatch(called);
    expect((await check(id)).json).toMatchObject({ code: "domain_unverified" });
    texts.set(record_name, [`${record_text}x`]);
    expect((await check(id)).status).toBe(409);
    texts.set(record_name, [record_text]);
    expect((await check(id)).json).toMatchObject({ verified_by: "dns" });
    const { id: userId, email } = await whoAmI();
    expect(email).toBe(`ada@example.org;${userId}`);
    const members = (await server.send("GET", "/api/org/acme/members/", { token: owner })).text;
    expect(members).toContain(`"ada@example.org;${userId}"`);
    expect((await server.send("DELETE", `/api/org/acme/domains/${id}/`, { token: owner })).status).toBe(204);
    expect((await whoAmI()).email).toMatch(called);
  });

  test("that the provider does not vouch for, or of another organization's domain, does not count", async () => {
    await verify("example.org");
    await add();
    provider.person = { ...ada, email_verified: false };
    expect((await whoAmI()).email).toMatch(/@acme;/);
    provider.person = { ...ada, sub: "evil", email: "boss@beta.example", name: "boss@beta.example" };
    expect((await whoAmI()).email).toMatch(/^boss-beta\.example@acme;\d+$/);
  });

  test("takes none from a user of the installation, and finds none", async () => {
    await verify("example.org");
    await add();
    provider.person = { ...ada, email: "owner@example.org" };
    const { id, email } = await whoAmI();
    expect([id === 1, email]).toEqual([false, `owner@example.org;${id}`]);
    expect((await sessionIn(server, await signIn()).send("GET", "/api/org/acme/")).json).toMatchObject({
      role: "member",
    });
    const body = { email, role: "member" };
    const beta = await betaOwner();
    expect((await beta("POST", "/api/org/beta/members/", { body })).status).toBe(400);
  });

  test("of a domain that another organization has verified cannot be a condition here", async () => {
    const body = { name: "x", issuer: provider.issuer, client_id: "a", domains: ["beta.example"] };
    const answer = await server.send("POST", "/api/org/acme/identity_providers/", { token: owner, body });
    expect(answer.json).toMatchObject({ errors: { domains: [expect.stringContaining("beta.example")] } });
  });

  test("is verified by the word of staff only if they are staff", async () => {
    const body = { organization: "acme", domain: "example.org" };
    const vouch = (token: string) => server.send("POST", "/api/domains/", { token, body });
    expect((await vouch(owner)).status).toBe(403);
    const staff = await server.person("staff@example.org", { isStaff: true });
    expect((await vouch(staff)).json).toMatchObject({ verified_by: "staff" });
  });
});

describe("the provider", () => {
  test("is not seen, changed or deleted by another organization, or as one of the installation", async () => {
    const id = await add();
    const beta = await betaOwner();
    const staff = await server.person("staff@example.org", { isStaff: true });
    const path = `identity_providers/${id}/`;
    for (const method of ["GET", "PATCH", "DELETE"]) {
      const body = method === "PATCH" ? { body: { creates_users: false } } : {};
      expect((await beta(method, `/api/org/beta/${path}`, body)).status).toBe(404);
      expect((await server.send(method, `/api/${path}`, { token: staff, ...body })).status).toBe(404);
    }
    expect((await server.send("GET", "/api/identity_providers/", { token: staff })).json).toEqual([]);
    expect((await beta("GET", "/api/org/beta/identity_providers/")).json).toEqual([]);
    // Both may use the same name.
    await addToBeta();
  });

  test("needs an administrator, and its secret is shown to nobody", async () => {
    await add();
    const member = await server.person("member@example.org");
    await server.join({ id: 1, slug: "acme" } as never, "member@example.org", "member");
    const list = (token: string) => server.send("GET", "/api/org/acme/identity_providers/", { token });
    expect((await list(member)).status).toBe(403);
    const shown = await list(owner);
    expect(shown.json).toMatchObject([{ name: "Company", organization: "acme", has_secret: true }]);
    expect(shown.text).not.toContain(provider.clientSecret);
    const service = await server.send("POST", "/api/org/acme/service_tokens/", {
      token: owner,
      body: { name: "ci", role: "admin" },
    });
    const { token } = v.parse(v.looseObject({ token: v.string() }), service.json);
    expect((await list(token)).status).toBe(403);
  });

  test("is offered only to who names the organization, or a domain that it has verified", async () => {
    await add();
    await addProvider(server, provider, { name: "Installed" });
    const offered = async (query: string) =>
      v
        .parse(
          v.array(v.object({ id: v.number(), name: v.string() })),
          (await server.send("GET", `/api/session/providers/${query}`)).json,
        )
        .map(({ name }) => name);
    expect(await offered("")).toEqual(["Installed"]);
    expect(await offered("?organization=beta")).toEqual(["Installed"]);
    expect(await offered("?organization=acme")).toEqual(["Company", "Installed"]);
    await claim("example.org");
    expect(await offered("?domain=example.org")).toEqual(["Installed"]);
    await server.db.write((tx) => tx.run("UPDATE verified_domains SET verified_at = 1"));
    expect(await offered("?domain=Example.org")).toEqual(["Company", "Installed"]);
  });

  test("of another organization takes no answer of a sign-in that began here, and the reverse", async () => {
    await add();
    await addToBeta();
    const { url, cookie } = await begin(server, { provider: 1 });
    const back = await signInAt(url);
    back.pathname = back.pathname.replace("/1/", "/2/");
    expect(whereTo(await comeBack(server, back, { "__Host-oidc": cookie }))).toEqual(
      refusedWith("sign_in_expired"),
    );
  });

  test.each([
    ["for all tenants of Microsoft", { issuer: "https://login.microsoftonline.com/common/v2.0" }],
    [
      "for all organizations of Microsoft",
      { issuer: "https://login.microsoftonline.com/organizations/v2.0" },
    ],
    ["of Google, without a domain", { issuer: "https://accounts.google.com" }],
    ["whose groups give the role of an owner", { roles: [{ group: "a", role: "owner" }] }],
    ["whose groups give a role elsewhere", { roles: [{ group: "a", role: "admin", organization: "beta" }] }],
  ])("is refused: %s", async (_, settings) => {
    const body = { name: "x", issuer: provider.issuer, client_id: "a", ...settings };
    const answer = await server.send("POST", "/api/org/acme/identity_providers/", { token: owner, body });
    expect(answer.status).toBe(400);
    expect(await server.db.all("SELECT 1 FROM identity_providers")).toEqual([]);
  });

  test("without a client is known with its redirect URI, and signs nobody in until it has one", async () => {
    const { client_id, client_secret, ...rest } = company({ scopes: "openid email profile groups" });
    const path = "/api/org/acme/identity_providers/";
    const made = await server.send("POST", path, { token: owner, body: rest });
    expect(made).toMatchObject({ status: 201, json: { client_id: "", has_secret: false } });
    expect(made.json).toMatchObject({ redirect_uri: callback(1) });
    const offered = async () => (await server.send("GET", "/api/session/providers/?organization=acme")).json;
    expect(await offered()).toEqual([]);
    const begun = { body: { provider: 1 }, headers: ownPage };
    expect((await server.send("POST", "/api/session/oidc/", begun)).status).toBe(404);
    const unnamed = await server.send("PATCH", `${path}1/`, { token: owner, body: { name: "" } });
    expect(unnamed.json).toMatchObject({ errors: { name: ["It must not be empty."] } });
    const body = { client_id, client_secret };
    expect((await server.send("PATCH", `${path}1/`, { token: owner, body })).status).toBe(200);
    expect(await offered()).toEqual([{ id: 1, name: "Company" }]);
    expect(whereTo(await signIn())).toEqual(signedIn);
    const empty = { token: owner, body: { client_id: "" } };
    expect(await server.send("PATCH", `${path}1/`, empty)).toMatchObject({
      status: 200,
      json: { client_id: "" },
    });
    expect(await offered()).toEqual([]);
  });

  test.each([
    ["that refuses connections", () => "http://127.0.0.1:1", /^It refuses connections/],
    ["that speaks no TLS", () => provider.issuer.replace("http:", "https:"), /^It does not speak TLS/],
    ["whose name has no address", () => "https://login.invalid", /^The server cannot resolve login.invalid/],
  ])("is refused with the reason: %s", async (_, issuer, hint) => {
    const body = { name: "x", issuer: issuer(), client_id: "a" };
    const answer = await server.send("POST", "/api/org/acme/identity_providers/", { token: owner, body });
    expect(answer.json).toMatchObject({
      code: "provider_unavailable",
      hint: expect.stringMatching(hint),
    });
  });

  test("that has no configuration there is named with its answer", async () => {
    const body = { name: "x", issuer: `${provider.issuer}/elsewhere`, client_id: "a" };
    const answer = await server.send("POST", "/api/org/acme/identity_providers/", { token: owner, body });
    expect(answer.json).toMatchObject({
      code: "untrusted_answer",
      detail: expect.stringMatching(/answered 404, not 200/),
    });
  });

  test("at an internal address is not asked", async () => {
    const body = { name: "x", issuer: "http://10.0.0.1", client_id: "a" };
    const answer = await server.send("POST", "/api/org/acme/identity_providers/", { token: owner, body });
    expect(answer.json).toMatchObject({
      code: "provider_unavailable",
      hint: expect.stringMatching(/^The address must be public.*Check the issuer/),
    });
  });

  test("with a pinned tenant admits no other", async () => {
    await add({ tenant: "preferred_username=ada@tenant" });
    expect(whereTo(await signIn())).toEqual(refused);
    provider.person = { ...ada, sub: "t", preferred_username: "ada@tenant" };
    expect(whereTo(await signIn())).toEqual(signedIn);
  });
});

describe("groups", () => {
  const roles = [
    { group: "staff", role: "member" },
    { group: "net-admins", role: "admin" },
  ];
  const roleOf = async () =>
    (await server.db.all("SELECT role FROM memberships WHERE email LIKE '%;%'")).map(({ role }) => role);

  test("give the role at each sign-in, and without one there is no user", async () => {
    await add({ creates_users: false, roles });
    expect(whereTo(await signIn())).toEqual(refused);
    expect(await server.db.all("SELECT 1 FROM organization_identities")).toEqual([]);
    provider.person = { ...ada, groups: ["net-admins"] };
    const browser = sessionIn(server, await signIn());
    expect(await roleOf()).toEqual(["admin"]);
    provider.person = { ...ada, groups: ["staff"] };
    expect(whereTo(await signIn())).toEqual(signedIn);
    expect(await roleOf()).toEqual(["member"]);
    provider.person = { ...ada, groups: [] };
    expect(whereTo(await signIn())).toEqual(refused);
    expect(await roleOf()).toEqual([]);
    expect((await browser.send("GET", "/api/org/acme/")).status).not.toBe(200);
  });
});
