// What a provider of identities says about a person is text from outside: nothing is stored of it that a database would change.

import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "bun:test";
import { startIdentityProvider, type IdentityProvider } from "../../support/oidc.ts";
import {
  addProvider,
  callback,
  makeSignInServer,
  refusedWith,
  signInBy,
  whereTo,
} from "../../support/oidc-sign-in.ts";
import { verifyChains } from "../../../src/server/audit/verify.ts";
import { makeAcme } from "../../support/people.ts";
import type { TestServer } from "../../support/server.ts";

const ada = { sub: "ada-1", email: "ada@example.org", email_verified: true };
const signedIn = [303, "/console/"];
let provider: IdentityProvider;
let server: TestServer;

beforeAll(async () => {
  provider = await startIdentityProvider([callback()]);
});
afterAll(() => provider[Symbol.asyncDispose]());
beforeEach(async () => {
  server = await makeSignInServer();
});
afterEach(() => server[Symbol.asyncDispose]());

const chainsAreWhole = async () =>
  (await verifyChains(server.db, server.app.services.secretKey)).every(({ breaks }) => breaks.length === 0);
const settings = { creates_users: true, scopes: "openid email profile groups" };

test("a verified address that no database stores creates no user, and breaks no chain of events", async () => {
  await addProvider(server, provider, settings);
  for (const email of ["\udfff@a.example", "a\ud83d@a.example", "a\0@a.example"]) {
    provider.person = { ...ada, email };
    expect(whereTo(await signInBy(server))).toEqual(refusedWith("sign_in_refused"));
  }
  expect(await server.db.all("SELECT 1 FROM users")).toEqual([]);
  expect(await chainsAreWhole()).toBe(true);
});

test("identities whose names would become one in the database are refused", async () => {
  await addProvider(server, provider, settings);
  for (const sub of ["\ud800", "\ud801", "a\0b"]) {
    provider.person = { ...ada, sub };
    expect(whereTo(await signInBy(server))).toEqual(refusedWith("sign_in_refused"));
  }
  expect(await server.db.all("SELECT 1 FROM identities")).toEqual([]);
});

test("groups are compared in one spelling: a provider may write them in another", async () => {
  await addProvider(server, provider, { ...settings, required_groups: ["re\u0301seau"] });
  provider.person = { ...ada, groups: ["r\u00e9seau"] };
  expect(whereTo(await signInBy(server))).toEqual(signedIn);
  provider.person = { ...ada, sub: "ada-2", email: "ada2@example.org", groups: ["re\u0301seau"] };
  expect(whereTo(await signInBy(server))).toEqual(signedIn);
});

test("the name of an organization's user is cut between characters", async () => {
  const { acme } = await makeAcme(server);
  await addProvider(server, provider, settings, { orgId: acme.id });
  provider.person = { ...ada, preferred_username: `${"x".repeat(59)}\u{20000}y` };
  expect(whereTo(await signInBy(server))).toEqual(signedIn);
  const [user] = await server.db.all("SELECT email FROM users WHERE bound_org_id = $1", [acme.id]);
  expect(String(user?.["email"])).toStartWith(`${"x".repeat(59)}@acme;`);
  expect(await chainsAreWhole()).toBe(true);
});
