// People who are invited and sign in by a provider, a real one: they have no password.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { signInBrowser, type Browser } from "../../support/browser-session.ts";
import { startIdentityProvider, type IdentityProvider, type Person } from "../../support/oidc.ts";
import {
  addProvider,
  callback,
  makeSignInServer,
  refusedWith,
  sessionIn,
  signInBy,
  whereTo,
} from "../../support/oidc-sign-in.ts";
import { makeAcme } from "../../support/people.ts";
import type { TestServer } from "../../support/server.ts";

const address = "ada@example.org";
const ada: Person = { sub: "ada-1", email: address, email_verified: true, name: "Ada", groups: [] };
const signedIn = [303, "/console/"];
const refused = refusedWith("sign_in_refused");
const day = 86_400_000;

let provider: IdentityProvider;
let server: TestServer;
let owner: string;
let orgId: number;

beforeAll(async () => {
  provider = await startIdentityProvider([callback()]);
});
afterAll(() => provider[Symbol.asyncDispose]());
beforeEach(async () => {
  server = await makeSignInServer();
  const made = await makeAcme(server);
  ({ owner } = made);
  orgId = made.acme.id;
  provider.person = ada;
});
afterEach(() => server[Symbol.asyncDispose]());

const scopes = "openid email profile groups";
const addOwn = (more: object = {}) => addProvider(server, provider, { scopes, ...more }, { orgId });
const addInstalled = (more: object = {}) =>
  addProvider(server, provider, { scopes, creates_users: true, ...more });
const verify = () =>
  server.db.write((tx) =>
    tx.run(
      "INSERT INTO verified_domains (org_id, domain, proof, created_at, verified_at, verified_by) VALUES ($1, 'example.org', '', 1, 1, 'staff')",
      [orgId],
    ),
  );
const invite = async (role = "admin", email = address) => {
  const body = { email, role };
  expect((await server.send("POST", "/api/org/acme/members/", { token: owner, body })).status).toBe(201);
};
const signIn = () => signInBy(server);
/** Roles of members but the owner, and of open invitations. */
const members = async () =>
  (
    await server.db.all(
      "SELECT role, user_id FROM memberships WHERE email <> 'owner@example.org' ORDER BY id",
    )
  ).map(({ role, user_id }) => `${String(role)} ${user_id === null ? "invited" : "joined"}`);

describe("by a provider of the organization", () => {
  test("the address of a verified domain joins with the role of the invitation, and stays without a group", async () => {
    await verify();
    await addOwn();
    await invite();
    for (let times = 0; times < 2; times++) expect(whereTo(await signIn())).toEqual(signedIn);
    expect(await members()).toEqual(["admin joined"]);
    const browser = sessionIn(server, await signIn());
    expect((await browser.send("GET", "/api/org/acme/")).json).toMatchObject({ role: "admin" });
    const user = await server.db.get("SELECT email, bound_org_id FROM users ORDER BY id DESC LIMIT 1");
    expect(user).toEqual({ email: expect.stringMatching(/^ada@example\.org;\d+$/), bound_org_id: orgId });
  });

  test("the provider's spelling of the domain is the inviter's", async () => {
    await verify();
    await addOwn();
    await invite("admin", "ada@EXAMPLE.org.");
    provider.person = { ...ada, email: "ada@example.org." };
    expect(whereTo(await signIn())).toEqual(signedIn);
    expect(await members()).toEqual(["admin joined"]);
  });

  test("a removed member is not brought back by the invitation of before", async () => {
    await verify();
    await addOwn();
    await invite();
    await signIn();
    const member = await server.db.get(
      "SELECT id FROM memberships WHERE user_id IS NOT NULL ORDER BY id DESC",
    );
    await server.send("DELETE", `/api/org/acme/members/${Number(member?.["id"])}/`, { token: owner });
    expect(whereTo(await signIn())).toEqual(refused);
  });

  test.each([
    ["is not in a verified domain", false, ada],
    ["is not verified by the provider", true, { ...ada, email_verified: false }],
    ["is another one", true, { ...ada, email: "eve@example.org" }],
  ])("an address that %s accepts no invitation", async (_, isVerified, person) => {
    if (isVerified) await verify();
    await addOwn();
    await invite();
    provider.person = person;
    expect(whereTo(await signIn())).toEqual(refused);
    expect(await members()).toEqual(["admin invited"]);
  });

  test("no invitation makes an owner, none is accepted after its end, and none is another organization's", async () => {
    await verify();
    await addOwn();
    await server.organization("beta", "10.88.0.0/16");
    const other = `INSERT INTO memberships (org_id, email, role, secret_hash, expires_at, created_at, invited_by)
      VALUES (2, $1, 'admin', 'x', $2, 0, 'person/1')`;
    await server.db.write((tx) => tx.run(other, [address, server.clock.ms + day]));
    await invite("owner");
    expect(whereTo(await signIn())).toEqual(refused);
    await server.db.write((tx) =>
      tx.run("UPDATE memberships SET role = 'member', expires_at = 1 WHERE org_id = $1 AND user_id IS NULL", [
        orgId,
      ]),
    );
    expect(whereTo(await signIn())).toEqual(refused);
    expect(await members()).toEqual(["admin invited", "member invited"]);
  });

  test("a member of a group keeps the role of the group; the invitation stays open", async () => {
    await verify();
    const roles = [{ group: "staff", organization: "acme", role: "member" as const }];
    await addOwn({ roles });
    provider.person = { ...ada, groups: ["staff"] };
    await signIn();
    await invite();
    expect(whereTo(await signIn())).toEqual(signedIn);
    expect(await members()).toEqual(["member joined", "admin invited"]);
    provider.person = ada;
    expect(whereTo(await signIn())).toEqual(refused);
  });
});

describe("by a provider of the installation", () => {
  test("a new user joins with the role of the invitation", async () => {
    await addInstalled();
    await invite();
    const browser = sessionIn(server, await signIn());
    expect((await browser.send("GET", "/api/org/acme/")).json).toMatchObject({ role: "admin" });
    expect(await members()).toEqual(["admin joined"]);
  });

  test.each([
    ["an owner", "owner", ada, signedIn],
    ["an address that is not verified", "admin", { ...ada, email_verified: false }, refused],
  ])("the invitation of %s stays open", async (_, role, person, to) => {
    await addInstalled();
    await invite(role);
    provider.person = person;
    expect(whereTo(await signIn())).toEqual(to);
    expect(await members()).toEqual([`${role} invited`]);
  });

  test("of several organizations none is chosen for the user", async () => {
    await addInstalled();
    await invite();
    await server.organization("beta", "10.88.0.0/16");
    const other = `INSERT INTO memberships (org_id, email, role, secret_hash, expires_at, created_at, invited_by)
      VALUES (2, $1, 'admin', 'x', $2, 0, 'person/1')`;
    await server.db.write((tx) => tx.run(other, [address, server.clock.ms + day]));
    expect(whereTo(await signIn())).toEqual(signedIn);
    expect(await members()).toEqual(["admin invited", "admin invited"]);
  });

  test("a user who is there accepts by the link while signed in, for the own address only, once", async () => {
    await addInstalled();
    const browser = sessionIn(server, await signIn());
    await server.organization("beta", "10.88.0.0/16");
    await server.join({ id: 2, slug: "beta" } as never, address, "member");
    const body = { email: address, role: "owner" };
    const asked = await server.send("POST", "/api/org/acme/members/", { token: owner, body });
    const { link } = v.parse(v.object({ link: v.string() }), asked.json);
    const [, secret = ""] = link.split("#");
    const join = (by: Browser) => by.send("POST", "/api/user/join/", { body: { secret } });
    const other = await signInBrowser(server);
    expect([(await join(other)).status, await members()]).toEqual([403, ["member joined", "owner invited"]]);
    const joined = await join(browser);
    expect([joined.status, joined.json]).toEqual([200, { email: address, org_slug: "acme" }]);
    expect(await members()).toEqual(["member joined", "owner joined"]);
    expect((await join(browser)).status).toBe(404);
  });
});
