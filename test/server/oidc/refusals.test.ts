// What a sign-in by a provider of identities refuses: forged and foreign tokens, answers of other browsers, mix-up of
// providers, open redirects, addresses that must not be asked.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { operator } from "../../../src/server/audit/record.ts";
import { changeProvider, deleteProvider, installation } from "../../../src/server/oidc/providers.ts";
import { providersApi } from "../../../src/api/providers/providers.ts";
import { startSession } from "../../../src/server/users/sessions/browser-sessions.ts";
import { setActive } from "../../../src/server/offboarding/user-status.ts";
import { cookieIn, ownPage, signInBrowser } from "../../support/browser-session.ts";
import { startHostileProvider, type Fault, type HostileProvider } from "../../support/hostile-provider.ts";
import {
  addProvider,
  begin,
  comeBack,
  makeSignInServer,
  refusedWith,
  whereTo,
} from "../../support/oidc-sign-in.ts";
import { makeAcme } from "../../support/people.ts";
import { makeTestServer, password, type TestServer } from "../../support/server.ts";

let provider: HostileProvider;
let other: HostileProvider;
let server: TestServer;

beforeAll(async () => {
  [provider, other] = await Promise.all([startHostileProvider(), startHostileProvider()]);
});
afterAll(async () => {
  await provider[Symbol.asyncDispose]();
  await other[Symbol.asyncDispose]();
});
beforeEach(async () => {
  for (const each of [provider, other]) Object.assign(each, { fault: {}, exchanges: [], asked: [] });
  server = await makeSignInServer();
  await makeAcme(server);
  await addProvider(server, provider, { creates_users: true });
});
afterEach(() => server[Symbol.asyncDispose]());

const accepted = [303, "/console/"];
const expired = refusedWith("sign_in_expired");
const untrusted = refusedWith("untrusted_answer");

/** The answer that leads the browser back; `change` makes it a foreign one. */
async function bring(
  change: { query?: Record<string, string | undefined>; cookie?: string | undefined; provider?: number } = {},
  begun?: Awaited<ReturnType<typeof begin>>,
) {
  const { url, cookie } = begun ?? (await begin(server));
  const asked = new URL(url).searchParams;
  provider.nonce = other.nonce = asked.get("nonce") ?? "";
  const back = new URL(`https://control.example/api/session/oidc/${change.provider ?? 1}/callback/`);
  const query = { code: "a code", state: asked.get("state") ?? "", ...change.query };
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) back.searchParams.set(name, value);
  const sent = "cookie" in change ? change.cookie : cookie;
  return comeBack(server, back, sent === undefined ? {} : { "__Host-oidc": sent });
}

test("the request has PKCE, state and nonce, each new, and the right answer is accepted", async () => {
  const [first, second] = [await begin(server), await begin(server)].map(
    ({ url }) => new URL(url).searchParams,
  );
  for (const name of ["state", "nonce", "code_challenge"]) {
    expect(first?.get(name)).toMatch(/^[\w-]{43}$/);
    expect(first?.get(name)).not.toBe(second?.get(name) ?? "");
  }
  expect([first?.get("code_challenge_method"), first?.get("response_type")]).toEqual(["S256", "code"]);
  expect(whereTo(await bring())).toEqual(accepted);
  expect(provider.exchanges[0]?.get("code_verifier")).toMatch(/^[\w-]{43}$/);
});

test("sign-ins at the same time all succeed, and read configuration and keys once", async () => {
  const signIns = Array.from({ length: 50 }, async () => {
    const { url, cookie } = await begin(server);
    const asked = new URL(url).searchParams;
    const query = { code: `nonce ${asked.get("nonce") ?? ""}`, state: asked.get("state") ?? "" };
    const back = new URL(
      `https://control.example/api/session/oidc/1/callback/?${new URLSearchParams(query).toString()}`,
    );
    return whereTo(await comeBack(server, back, { "__Host-oidc": cookie }));
  });
  for (const each of await Promise.all(signIns)) expect(each).toEqual(accepted);
  const reads = Map.groupBy(provider.asked, (path) => path);
  expect(reads.get("/.well-known/openid-configuration")).toHaveLength(1);
  // Sign-ins that come after the first ones find them read; those that are late by a moment may ask again.
  expect(reads.get("/keys")?.length).toBeLessThan(5);
});

test("an address and whether it is verified come from one place: the ID token's word is not about another address", async () => {
  const configuration = { userinfo_endpoint: `${other.issuer}/userinfo` };
  const fault = { configuration, claims: { email: undefined, email_verified: true } };
  const about = async (information: Record<string, unknown>) => {
    other.fault = { ...fault, information: { email: "new@example.org", ...information } };
    return whereTo(await bring({ provider: 2 }, await begin(server, { provider: 2 })));
  };
  other.fault = fault;
  await addProvider(server, other, { name: "Other", creates_users: true });
  expect(await about({})).toEqual(refusedWith("sign_in_refused"));
  expect(await about({ email_verified: true })).toEqual(accepted);
});

describe("a token is refused", () => {
  const now = Math.floor(Date.now() / 1000);
  test.each<[string, Fault]>([
    ["with another iss", { claims: { iss: "https://evil.example" } }],
    ["with another aud", { claims: { aud: "other" } }],
    ["with a second aud and no azp", { claims: { aud: ["agent", "other"] } }],
    ["with a foreign azp", { claims: { aud: ["agent", "other"], azp: "other" } }],
    ["with another nonce", { claims: { nonce: "other" } }],
    ["without a nonce", { claims: { nonce: undefined } }],
    ["without a subject", { claims: { sub: undefined } }],
    ["that has expired", { claims: { exp: now - 120 } }],
    ["that is not valid yet", { claims: { nbf: now + 300 } }],
    ["without a signature", { algorithm: "none" }],
    ["signed by HS256 with the public key", { algorithm: "HS256" }],
    ["signed with another key", { isForged: true }],
  ])("%s", async (_, fault) => {
    provider.fault = fault;
    const answer = await bring();
    expect(whereTo(answer)).toEqual(untrusted);
    expect(cookieIn(answer, "__Host-session")).toBeUndefined();
    expect(await server.db.all("SELECT 1 FROM identities")).toEqual([]);
  });

  test.each<[string, () => Response, string]>([
    [
      "an error of the provider",
      () => Response.json({ error: "invalid_grant" }, { status: 400 }),
      "untrusted_answer",
    ],
    ["no token", () => Response.json({ access_token: "a", token_type: "bearer" }), "untrusted_answer"],
    ["no JSON", () => new Response("<html>"), "untrusted_answer"],
    ["a failure", () => new Response("", { status: 503 }), "provider_unavailable"],
    ["a redirect", () => Response.redirect("http://127.0.0.1:1/", 302), "untrusted_answer"],
    ["2 MB", () => new Response("x".repeat(2e6)), "provider_unavailable"],
  ])("where there is %s", async (_, answer, code) => {
    provider.fault = { answer };
    expect(whereTo(await bring())).toEqual(refusedWith(code));
  });
});

describe("an answer is refused", () => {
  test("without the cookie of the browser that began, or with that of another sign-in", async () => {
    expect(whereTo(await bring({ cookie: undefined }))).toEqual(expired);
    const another = await begin(server);
    expect(whereTo(await bring({ cookie: another.cookie }))).toEqual(expired);
    expect(whereTo(await bring({ cookie: "s1.0123456789abcdef.AAAA" }))).toEqual(expired);
    expect(provider.exchanges).toEqual([]);
  });

  test("without state, with another state, and without a code", async () => {
    expect(whereTo(await bring({ query: { state: undefined } }))).toEqual(expired);
    expect(whereTo(await bring({ query: { state: "x".repeat(43) } }))).toEqual(expired);
    expect(whereTo(await bring({ query: { code: undefined } }))).toEqual(untrusted);
    expect(provider.exchanges).toEqual([]);
  });

  test("that is used a second time, also at the same moment", async () => {
    const begun = await begin(server);
    const both = await Promise.all([bring({}, begun), bring({}, begun)]);
    expect(new Set(both.map((each) => whereTo(each)[1]))).toEqual(new Set([accepted[1], expired[1]]));
    expect(whereTo(await bring({}, begun))).toEqual(expired);
    expect(provider.exchanges).toHaveLength(1);
  });

  test("after ten minutes", async () => {
    const begun = await begin(server);
    server.clock.ms += 10 * 60_000;
    expect(whereTo(await bring({}, begun))).toEqual(expired);
  });

  test("that another provider gave: the code of one is not sent to the other", async () => {
    await addProvider(server, other, { name: "Other", creates_users: true });
    expect(whereTo(await bring({ provider: 2 }))).toEqual(expired);
    expect(whereTo(await bring({ query: { iss: other.issuer } }))).toEqual(untrusted);
    expect([provider.exchanges, other.exchanges]).toEqual([[], []]);
  });

  test("with a token of another provider", async () => {
    await addProvider(server, other, { name: "Other", creates_users: true });
    provider.fault = { claims: { iss: other.issuer } };
    expect(whereTo(await bring())).toEqual(untrusted);
  });

  test("from a network that brought 30 that failed, with Retry-After", async () => {
    provider.fault = { isForged: true };
    for (let times = 0; times < 30; times++) await bring();
    const answer = await bring();
    expect([answer.status, Number(answer.headers.get("retry-after"))]).toEqual([429, expect.any(Number)]);
    expect(provider.exchanges).toHaveLength(30);
  });
});

describe("while the provider works on the code", () => {
  const settings = (change: object) => () =>
    changeProvider(server.app.services, installation, 1, v.parse(providersApi.update.body, change), operator);
  const sessions = async () => (await server.db.all("SELECT id FROM browser_sessions")).length;
  const known = async () => {
    expect(whereTo(await bring())).toEqual(accepted);
    await server.db.write((tx) => tx.run("DELETE FROM browser_sessions"));
  };

  test.each<[string, () => () => Promise<unknown>, string]>([
    ["a group becomes required", () => settings({ required_groups: ["staff"] }), "sign_in_refused"],
    ["another domain becomes required", () => settings({ domains: ["example.net"] }), "sign_in_refused"],
    ["a tenant is pinned", () => settings({ tenant: "hd=example.net" }), "sign_in_refused"],
    [
      "the provider is deleted",
      () => () => deleteProvider(server.app.services, installation, 1, operator),
      "not_found",
    ],
    [
      "the user is disabled",
      () => () => setActive(server.app.services, "ada@example.org", false, operator),
      "sign_in_refused",
    ],
  ])("%s: no session begins", async (_, change, code) => {
    await known();
    provider.fault = { meanwhile: change() };
    expect(whereTo(await bring())).toEqual(refusedWith(code));
    expect(await sessions()).toBe(0);
  });

  test("the provider stops creating users: none is created", async () => {
    provider.fault = { meanwhile: settings({ creates_users: false }) };
    expect(whereTo(await bring())).toEqual(refusedWith("sign_in_refused"));
    expect(await server.db.all("SELECT 1 FROM users WHERE email = 'ada@example.org'")).toEqual([]);
  });

  test.each<[string, (id: number) => Promise<unknown>]>([
    [
      "ends the session",
      (id) => server.db.write((tx) => tx.run("DELETE FROM browser_sessions WHERE id = $1", [id])),
    ],
    ["is disabled", () => setActive(server.app.services, "owner@example.org", false, operator)],
  ])("the user who links an identity %s: it is not linked", async (_, change) => {
    const owner = await signInBrowser(server);
    const begun = await owner.send("POST", "/api/user/identities/", {
      body: { provider: 1, current_password: password },
    });
    const { url } = v.parse(v.object({ url: v.string() }), begun.json);
    const asked = new URL(url).searchParams;
    provider.nonce = asked.get("nonce") ?? "";
    const [row] = await server.db.all("SELECT id FROM browser_sessions ORDER BY id DESC");
    provider.fault = { meanwhile: () => change(Number(row?.["id"])) };
    const words = new URLSearchParams({ code: "a code", state: asked.get("state") ?? "" });
    const back = new URL(`https://control.example/api/session/oidc/1/callback/?${words.toString()}`);
    const cookies = { "__Host-oidc": cookieIn(begun, "__Host-oidc") ?? "", "__Host-session": owner.cookie };
    expect(whereTo(await comeBack(server, back, cookies))).toEqual(expired);
    expect(await server.db.all("SELECT 1 FROM identities")).toEqual([]);
  });
});

test("a session by an identity that was unlinked a moment before does not begin", async () => {
  expect(whereTo(await bring())).toEqual(accepted);
  const { id } = v.parse(
    v.object({ id: v.number() }),
    await server.db.get("SELECT id FROM users WHERE email = 'ada@example.org'"),
  );
  await server.db.write((tx) => tx.run("DELETE FROM identities"));
  const origin = {
    address: "192.0.2.1",
    request: new Request("https://control.example/"),
    former: undefined,
  };
  const start = startSession(
    server.app.services,
    { userId: id },
    { ...origin, factorAt: null, providerId: 1 },
  );
  expect(await start.catch((error: unknown) => error)).toMatchObject({ code: "sign_in_expired" });
});

describe("the beginning is refused", () => {
  test.each<[string, Record<string, string>]>([
    ["another site", { Origin: "https://evil.example" }],
    ["a sibling host", { Origin: "https://www.control.example", "Sec-Fetch-Site": "same-site" }],
    ["a form", { "Content-Type": "application/x-www-form-urlencoded" }],
  ])("to %s", async (_, headers) => {
    const answer = await server.send("POST", "/api/session/oidc/", {
      body: { provider: 1 },
      headers: { ...ownPage, ...headers },
    });
    expect([answer.status >= 400, answer.headers.getSetCookie()]).toEqual([true, []]);
  });

  test("to a GET, which changes nothing", async () => {
    expect((await server.send("GET", "/api/session/oidc/", { headers: ownPage })).status).toBe(405);
  });

  test.each([
    "https://evil.example/console/",
    "//evil.example/console/",
    String.raw`/\evil.example/console/`,
    "/console/../../evil",
    "/api/session/",
    "javascript:alert(1)",
    "https://control.example@evil.example/console/",
  ])("to lead to %s afterwards: the start page opens", async (place) => {
    expect(whereTo(await bring({}, await begin(server, { return_to: place })))).toEqual(accepted);
  });
});

describe("a provider is refused", () => {
  test.each<[string, Record<string, unknown>]>([
    ["for all tenants of Microsoft", { issuer: "https://login.microsoftonline.com/common/v2.0" }],
    ["of Google, without a domain", { issuer: "https://accounts.google.com" }],
    ["of gitlab.com, without a group", { issuer: "https://gitlab.com" }],
    ["without a URL", { issuer: "login" }],
    ["with a user in the URL", { issuer: "https://user@login.example" }],
    ["with a password in the URL", { issuer: "https://:secret@login.example" }],
    ["with a line break in the URL", { issuer: "https://login.example/a\r\nX: y" }],
    ["of a domain that is an address", { domains: ["192.0.2.7"] }],
    ["of a domain with a label that begins with a hyphen", { domains: ["-a.example"] }],
    ["of a domain with a label of 64 letters", { domains: [`${"a".repeat(64)}.example`] }],
    ["without the scope openid", { scopes: "email" }],
    ["at an internal address", { issuer: "http://10.0.0.1" }],
    ["at the address of the cloud's metadata", { issuer: "http://169.254.169.254" }],
  ])("%s", async (_, settings) => {
    const strict = await makeTestServer();
    const token = await strict.person("staff@example.org", { isStaff: true });
    const body = { name: "x", issuer: "https://login.example", client_id: "a", ...settings };
    const answer = await strict.send("POST", "/api/identity_providers/", { token, body });
    expect([400, 502]).toContain(answer.status);
    // What is wrong with the settings is found before the provider is asked; an internal address, when it would be.
    const isAsked = String(settings["issuer"]).startsWith("http://");
    expect(answer.status === 502).toBe(isAsked);
    expect(await strict.db.all("SELECT 1 FROM identity_providers")).toEqual([]);
    await strict[Symbol.asyncDispose]();
  });

  test("whose configuration names another issuer, or no page for signing in", async () => {
    const token = await server.person("staff@example.org", { isStaff: true });
    const body = { name: "x", issuer: other.issuer, client_id: "a" };
    other.fault = { configuration: { issuer: provider.issuer } };
    const answer = await server.send("POST", "/api/identity_providers/", { token, body });
    expect(answer.json).toMatchObject({ code: "untrusted_answer" });
  });

  test("by everybody but staff", async () => {
    const owner = await server.person("member@example.org");
    for (const [method, path] of [
      ["GET", "/api/identity_providers/"],
      ["POST", "/api/identity_providers/"],
      ["PATCH", "/api/identity_providers/1/"],
      ["DELETE", "/api/identity_providers/1/"],
    ] as const) {
      const body = method === "POST" || method === "PATCH" ? { body: {} } : {};
      expect((await server.send(method, path, { token: owner, ...body })).status).toBe(403);
      expect((await server.send(method, path, body)).status).toBe(401);
    }
  });
});
