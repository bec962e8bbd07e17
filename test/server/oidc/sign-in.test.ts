// Sign-in by a real provider of identities: who gets a session, as which user, with which roles, and for how long.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { operator } from "../../../src/server/audit/record.ts";
import { changeRole } from "../../../src/server/offboarding/member-changes.ts";
import { unlinkIdentity } from "../../../src/server/oidc/identities.ts";
import { setActive } from "../../../src/server/offboarding/user-status.ts";
import { browserWith, cookieIn, ownPage, signInBrowser } from "../../support/browser-session.ts";
import { appWith } from "../../support/factors.ts";
import { registerNode } from "../../support/nodes.ts";
import { signInAt, startIdentityProvider, type IdentityProvider } from "../../support/oidc.ts";
import {
  addProvider,
  begin,
  callback,
  comeBack,
  killedAfterWrites,
  makeSignInServer,
  refusedWith,
  sessionIn,
  signInBy,
  whereTo,
} from "../../support/oidc-sign-in.ts";
import { makeAcme, membershipOf } from "../../support/people.ts";
import { password, type TestServer } from "../../support/server.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { nodes } from "../../../src/server/store/tables/nodes.ts";

const hour = 3_600_000;
const ada = { sub: "ada-1", email: "Ada@Example.org", email_verified: true, groups: ["staff", "net-admins"] };
let provider: IdentityProvider;
let server: TestServer;
let acme: Organization;

beforeAll(async () => {
  provider = await startIdentityProvider([callback()]);
});
afterAll(() => provider[Symbol.asyncDispose]());
beforeEach(async () => {
  server = await makeSignInServer();
  ({ acme } = await makeAcme(server));
  provider.person = ada;
});
afterEach(() => server[Symbol.asyncDispose]());

const groups = { scopes: "openid email groups" };
const creating = { creates_users: true, ...groups };
const whoAmI = async (server_: TestServer, answer: Awaited<ReturnType<typeof signInBy>>) =>
  (await sessionIn(server_, answer).send("GET", "/api/user/")).json;
const rolesOf = async (email: string) =>
  (await server.db.all("SELECT role FROM memberships WHERE email = $1", [email])).map(({ role }) => role);

describe("the session", () => {
  test("is that of a new user, without a password and without rights, and ends after a day", async () => {
    await addProvider(server, provider, creating);
    const answer = await signInBy(server, { return_to: "/console/acme/?x=1" });
    expect(whereTo(answer)).toEqual([303, "/console/acme/?x=1"]);
    expect(await whoAmI(server, answer)).toEqual({
      id: 2,
      email: "ada@example.org",
      is_staff: false,
      server_version: "0.0.0-source",
    });
    const browser = sessionIn(server, answer);
    expect((await browser.send("GET", "/api/org/")).json).toEqual([]);
    const direct = await server.send("POST", "/api/token/", { body: { email: ada.email, password: "" } });
    expect(direct.status).not.toBe(200);
    const [{ expires_at: at }] = (await browser.send("GET", "/api/user/sessions/")).json as [
      { expires_at: string },
    ];
    expect(Date.parse(at) - server.clock.ms).toBeLessThanOrEqual(12 * hour);
    server.clock.ms += 11 * hour;
    expect((await browser.send("GET", "/api/user/")).status).toBe(200);
    server.clock.ms += 11 * hour;
    expect((await browser.send("GET", "/api/user/")).status).toBe(200);
    server.clock.ms += 3 * hour;
    expect((await browser.send("GET", "/api/user/")).status).toBe(401);
  });

  test("belongs to the same user at the next sign-in, also when the address changes", async () => {
    await addProvider(server, provider, creating);
    await signInBy(server);
    provider.person = { ...ada, email: "ada.lovelace@example.org" };
    expect(await whoAmI(server, await signInBy(server))).toMatchObject({ id: 2, email: "ada@example.org" });
  });

  test("is refused to an unknown identity where the provider creates no users", async () => {
    await addProvider(server, provider, groups);
    const answer = await signInBy(server);
    expect(whereTo(answer)).toEqual(refusedWith("sign_in_refused"));
    expect(cookieIn(answer, "__Host-session")).toBeUndefined();
    expect(await server.db.all("SELECT 1 FROM identities")).toEqual([]);
  });

  test("is refused to a disabled user, and those that there are end", async () => {
    await addProvider(server, provider, creating);
    const browser = sessionIn(server, await signInBy(server));
    await setActive(server.app.services, "ada@example.org", false, operator);
    expect((await browser.send("GET", "/api/user/")).status).toBe(401);
    expect(whereTo(await signInBy(server))).toEqual(refusedWith("sign_in_refused"));
  });

  test("is a new one each time: the cookie that the browser had is replaced", async () => {
    await addProvider(server, provider, creating);
    const former = cookieIn(await signInBy(server), "__Host-session") ?? "";
    const { url, cookie } = await begin(server);
    const again = await comeBack(server, await signInAt(url), {
      "__Host-oidc": cookie,
      "__Host-session": former,
    });
    expect(cookieIn(again, "__Host-session")).not.toBe(former);
    expect((await browserWith(server, former).send("GET", "/api/user/")).status).toBe(401);
  });

  test("is refused to a person who declines at the provider", async () => {
    await addProvider(server, provider, creating);
    provider.person = undefined;
    expect(whereTo(await signInBy(server))).toEqual(refusedWith("sign_in_refused"));
  });

  test("sign-out names the provider's page, and that accepts it", async () => {
    await addProvider(server, provider, creating);
    const out = await sessionIn(server, await signInBy(server)).send("DELETE", "/api/session/");
    const url = out.headers.get("x-sign-out-page") ?? "";
    expect([out.status, url.split("=")[0]]).toEqual([204, `${provider.issuer}/session/end?client_id`]);
    expect((await fetch(url)).status).toBe(200);
    const plain = await (await signInBrowser(server)).send("DELETE", "/api/session/");
    expect([plain.status, plain.headers.get("x-sign-out-page")]).toEqual([204, null]);
  });
});

describe("an address that is taken", () => {
  const stranger = { sub: "other", email: "owner@example.org", email_verified: true };

  test("gives no session, and the user links the identity after a sign-in of the old way", async () => {
    await addProvider(server, provider, creating);
    provider.person = stranger;
    expect(whereTo(await signInBy(server))).toEqual(refusedWith("address_in_use"));
    const owner = await signInBrowser(server);
    const body = { provider: 1, return_to: "/console/-/account/", current_password: password };
    const without = await owner.send("POST", "/api/user/identities/", { body: { provider: 1 } });
    expect(without.json).toMatchObject({ errors: { current_password: ["This field is required."] } });
    const begun = await owner.send("POST", "/api/user/identities/", { body });
    const { url } = begun.json as { url: string };
    const cookies = { "__Host-oidc": cookieIn(begun, "__Host-oidc") ?? "", "__Host-session": owner.cookie };
    expect(whereTo(await comeBack(server, await signInAt(url), cookies))).toEqual([
      303,
      "/console/-/account/",
    ]);
    expect((await owner.send("GET", "/api/user/identities/")).json).toMatchObject([
      { id: 1, provider: "Company", email: "owner@example.org" },
    ]);
    expect(await whoAmI(server, await signInBy(server))).toMatchObject({ id: 1 });
  });

  test("another subject with the same address is another identity", async () => {
    await addProvider(server, provider, creating);
    await signInBy(server);
    provider.person = { ...ada, sub: "ada-2" };
    expect(whereTo(await signInBy(server))).toEqual(refusedWith("address_in_use"));
  });

  test("an identity is linked only in the session that began, and not to a second user", async () => {
    await addProvider(server, provider, creating);
    const owner = await signInBrowser(server);
    const beginLink = async () => {
      const begun = await owner.send("POST", "/api/user/identities/", {
        body: { provider: 1, current_password: password },
      });
      return { url: (begun.json as { url: string }).url, cookie: cookieIn(begun, "__Host-oidc") ?? "" };
    };
    const first = await beginLink();
    await server.person("eve@example.org");
    const eve = await signInBrowser(server, "eve@example.org");
    const foreign = { "__Host-oidc": first.cookie, "__Host-session": eve.cookie };
    expect(whereTo(await comeBack(server, await signInAt(first.url), foreign))).toEqual(
      refusedWith("sign_in_expired"),
    );
    provider.person = { ...ada, sub: "of-eve" };
    await signInBy(server);
    const second = await beginLink();
    const own = { "__Host-oidc": second.cookie, "__Host-session": owner.cookie };
    expect(whereTo(await comeBack(server, await signInAt(second.url), own))).toEqual(refusedWith("conflict"));
  });

  test("unlinking ends the sessions of the identity; the last way to sign in stays", async () => {
    await addProvider(server, provider, creating);
    const browser = sessionIn(server, await signInBy(server));
    const last = await browser.send("DELETE", "/api/user/identities/1/");
    expect([last.status, last.json]).toEqual([409, expect.objectContaining({ code: "conflict" })]);
    await server.db.write((tx) => tx.run("UPDATE users SET password_hash = 'x' WHERE id = 2"));
    expect((await browser.send("DELETE", "/api/user/identities/1/")).status).toBe(204);
    expect((await browser.send("GET", "/api/user/")).status).toBe(401);
    expect((await (await signInBrowser(server)).send("DELETE", "/api/user/identities/1/")).status).toBe(404);
  });
});

test("unlinking takes the role and the groups of machines that the identity's groups gave in one transaction", async () => {
  const roles = [{ group: "net-admins", organization: "acme", role: "admin" as const }];
  const node_groups = [{ group: "net-admins", organization: "acme", node_group: "db" }];
  await addProvider(server, provider, { ...creating, roles, node_groups });
  await signInBy(server);
  const { id } = await registerNode(server, acme, "laptop");
  await server.db.write((tx) => tx.run("UPDATE nodes SET owner_id = 2, owner_known = 1"));
  const browser = sessionIn(server, await signInBy(server));
  await server.db.write((tx) => tx.run("UPDATE users SET password_hash = 'x' WHERE id = 2"));
  const given = async () => (await nodes.find(server.db, { id }))?.groups;
  expect([await rolesOf("ada@example.org"), await given()]).toEqual([["admin"], ["db"]]);
  const user = { userId: 2, email: "ada@example.org" };
  await unlinkIdentity(killedAfterWrites(server.app.services, 1), user, 1, operator).catch(() => undefined);
  expect((await browser.send("GET", "/api/user/")).status).toBe(401);
  expect([await rolesOf("ada@example.org"), await given()]).toEqual([[], []]);
});

describe("who may sign in", () => {
  test.each([
    ["an unverified address", { creates_users: true }, { email_verified: false }],
    ["no address", { creates_users: true }, { email: undefined }],
    ["an address of another domain", { ...creating, domains: ["example.com"] }, {}],
    [
      "an unverified address of the domain",
      { ...creating, domains: ["example.org"] },
      { email_verified: false },
    ],
    ["a subdomain", { ...creating, domains: ["example.org"] }, { email: "ada@sub.example.org" }],
    ["none of the groups", { ...creating, required_groups: ["vpn"] }, {}],
    [
      "groups that are no list of texts",
      { ...creating, required_groups: ["vpn"] },
      { groups: { vpn: true } },
    ],
    ["another tenant", { ...creating, tenant: "hd=example.org" }, {}],
  ])("an identity with %s is refused", async (_, settings, claims) => {
    await addProvider(server, provider, settings);
    provider.person = { ...ada, sub: crypto.randomUUID(), ...claims };
    expect(whereTo(await signInBy(server))).toEqual(refusedWith("sign_in_refused"));
    expect(await server.db.all("SELECT email FROM users WHERE id > 1")).toEqual([]);
  });

  test("an identity with a group and a domain that may is admitted", async () => {
    await addProvider(server, provider, {
      ...creating,
      domains: ["example.org"],
      required_groups: ["x", "staff"],
    });
    expect(whereTo(await signInBy(server))).toEqual([303, "/console/"]);
  });
});

describe("groups at the provider", () => {
  const roles = [
    { group: "staff", organization: "acme", role: "member" as const },
    { group: "net-admins", organization: "acme", role: "admin" as const },
  ];

  test("give the highest of their roles at each sign-in, and take it", async () => {
    await addProvider(server, provider, { ...creating, roles });
    const browser = sessionIn(server, await signInBy(server));
    expect(await rolesOf("ada@example.org")).toEqual(["admin"]);
    provider.person = { ...ada, groups: ["staff"] };
    await signInBy(server);
    expect(await rolesOf("ada@example.org")).toEqual(["member"]);
    expect((await browser.send("GET", "/api/user/")).status).toBe(401);
    provider.person = { ...ada, groups: [] };
    await signInBy(server);
    expect(await rolesOf("ada@example.org")).toEqual([]);
  });

  test("neither give nor take the role of an owner, nor a role that a person gave", async () => {
    await addProvider(server, provider, { ...creating, roles });
    await signInBy(server);
    const id = await membershipOf(server.db, acme, "ada@example.org");
    const by = { role: "owner", actor: operator } as const;
    await changeRole(server.app.services, acme, id, "owner", by);
    provider.person = { ...ada, groups: [] };
    await signInBy(server);
    expect(await rolesOf("ada@example.org")).toEqual(["owner"]);
    const asOwner = await server.send("POST", "/api/identity_providers/", {
      token: await server.person("staff@example.org", { isStaff: true }),
      body: { name: "x", issuer: provider.issuer, client_id: "a", roles: [{ ...roles[0], role: "owner" }] },
    });
    expect(asOwner.status).toBe(400);
    await server.join(acme, "staff@example.org", "member");
    expect(await rolesOf("staff@example.org")).toEqual(["member"]);
  });
});

describe("a second factor", () => {
  test("of a user without a password needs a new sign-in, and counts as for others", async () => {
    await addProvider(server, provider, {
      ...creating,
      roles: [{ group: "staff", organization: "acme", role: "admin" }],
    });
    await server.db.write((tx) => tx.run("UPDATE organizations SET second_factor = 1"));
    const browser = sessionIn(server, await signInBy(server));
    expect((await browser.send("GET", "/api/org/acme/")).json).toMatchObject({
      code: "second_factor_missing",
    });
    server.clock.ms += 11 * 60_000;
    const late = await browser.send("POST", "/api/user/totp/", { body: {} });
    expect([late.status, late.json]).toEqual([403, expect.objectContaining({ code: "permission_denied" })]);
    server.clock.ms = Date.now();
    const again = sessionIn(server, await signInBy(server));
    const begun = await again.send("POST", "/api/user/totp/", { body: {} });
    const app = appWith(server, (begun.json as { secret: string }).secret);
    await again.send("POST", "/api/user/totp/confirm/", { body: { otp: app.code() } });
    expect((await again.send("GET", "/api/org/acme/")).status).toBe(200);
    const next = sessionIn(server, await signInBy(server));
    expect((await next.send("GET", "/api/org/acme/")).json).toMatchObject({ code: "step_up_required" });
  });
});

describe("the provider", () => {
  test("that is away refuses nobody who has a session or a password", async () => {
    await addProvider(server, provider, creating);
    const browser = sessionIn(server, await signInBy(server));
    const { url, cookie } = await begin(server);
    const back = await signInAt(url);
    await provider.stop();
    try {
      expect(whereTo(await comeBack(server, back, { "__Host-oidc": cookie }))).toEqual(
        refusedWith("provider_unavailable"),
      );
      server.clock.ms += 11 * 60_000;
      const answer = await server.send("POST", "/api/session/oidc/", {
        body: { provider: 1 },
        headers: ownPage,
      });
      expect([answer.status, answer.json]).toEqual([
        502,
        expect.objectContaining({
          code: "provider_unavailable",
          hint: expect.stringContaining("another way"),
        }),
      ]);
      expect((await browser.send("GET", "/api/user/")).status).toBe(200);
      expect((await (await signInBrowser(server)).send("GET", "/api/user/")).status).toBe(200);
    } finally {
      await provider.start();
    }
  });

  test("may replace its keys at any time", async () => {
    await addProvider(server, provider, creating);
    await signInBy(server);
    await provider.rotateKeys();
    server.clock.ms += 6000;
    expect(whereTo(await signInBy(server))).toEqual([303, "/console/"]);
  });

  test("may have a clock that is 50 seconds off, in both directions, but tokens end", async () => {
    await addProvider(server, provider, creating);
    for (const [offset, code] of [
      [50, undefined],
      [-50, undefined],
      [3700, "untrusted_answer"],
    ] as const) {
      server.clock.ms = Date.now() + offset * 1000;
      const expected = code === undefined ? [303, "/console/"] : refusedWith(code);
      expect([offset, ...whereTo(await signInBy(server))]).toEqual([offset, ...expected]);
    }
  });

  test("its secret is in no log, address, answer or event, and sealed in the database", async () => {
    const staff = await server.person("staff@example.org", { isStaff: true });
    await addProvider(server, provider, creating);
    const { url, cookie } = await begin(server);
    const back = await signInAt(url);
    const answer = await comeBack(server, back, { "__Host-oidc": cookie });
    const shown = await server.send("GET", "/api/identity_providers/", { token: staff });
    expect(shown.json).toMatchObject([{ has_secret: true, redirect_uri: callback() }]);
    const events = JSON.stringify(await server.db.all("SELECT * FROM events"));
    const stored = JSON.stringify(await server.db.all("SELECT * FROM identity_providers"));
    const everything = [
      server.log.join("\n"),
      url,
      back.href,
      shown.text,
      events,
      stored,
      ...whereTo(answer),
    ].join("\n");
    expect(everything).not.toContain(provider.clientSecret);
    const code = back.searchParams.get("code") ?? "";
    expect(code.length).toBeGreaterThan(20);
    expect(server.log.join("\n")).not.toContain(code);
  });

  test("its deletion ends its sessions and identities, and lets the users be", async () => {
    await addProvider(server, provider, {
      ...creating,
      roles: [{ group: "staff", organization: "acme", role: "member" }],
    });
    const browser = sessionIn(server, await signInBy(server));
    const staff = await server.person("staff@example.org", { isStaff: true });
    expect((await server.send("DELETE", "/api/identity_providers/1/", { token: staff })).status).toBe(204);
    expect((await browser.send("GET", "/api/user/")).status).toBe(401);
    expect(await server.db.all("SELECT 1 FROM identities")).toEqual([]);
    expect(await rolesOf("ada@example.org")).toEqual(["member"]);
    expect((await server.send("GET", "/api/session/providers/")).json).toEqual([]);
  });
});
