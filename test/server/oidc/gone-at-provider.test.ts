// People who leave their provider, a real one: noticed within an hour where it gave a refresh token; its failures end nothing.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { openSecret, sealSecret } from "../../../src/pki/secrets.ts";
import { checkLeavers } from "../../../src/server/oidc/gone-at-provider.ts";
import { grantContext, providerGrants } from "../../../src/server/store/tables/providers.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { type Browser, signInBrowser } from "../../support/browser-session.ts";
import { certificateOf, downloadOf, registerNode } from "../../support/nodes.ts";
import { startIdentityProvider, type IdentityProvider } from "../../support/oidc.ts";
import {
  addProvider,
  callback,
  killedAfterWrites,
  makeSignInServer,
  sessionIn,
  signInBy,
  whereTo,
} from "../../support/oidc-sign-in.ts";
import { makeAcme } from "../../support/people.ts";
import { onPostgres, type TestServer } from "../../support/server.ts";

const hour = 3_600_000;
const ada = { sub: "ada-1", email: "ada@example.org", email_verified: true, groups: ["staff"] };
let provider: IdentityProvider;
let server: TestServer;
let acme: Organization;
let owner: string;
let staff: string;

beforeEach(async () => {
  provider = await startIdentityProvider([callback()]);
  server = await makeSignInServer();
  ({ acme, owner } = await makeAcme(server));
  staff = await server.person("staff@example.org", { isStaff: true });
  provider.person = ada;
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
  await provider[Symbol.asyncDispose]();
});

const asked = { scopes: "openid email groups offline_access" };
const settings = {
  creates_users: true,
  roles: [{ group: "staff", organization: "acme", role: "member" as const }],
  ...asked,
};
const add = (of: "installation" | "organization" = "installation", more: object = {}) =>
  addProvider(server, provider, { ...settings, ...more }, { orgId: of === "installation" ? null : acme.id });
async function signIn(): Promise<Browser> {
  const answer = await signInBy(server);
  expect(whereTo(answer)).toEqual([303, "/console/"]);
  return sessionIn(server, answer);
}
/** The next hour begins, and the loop has its turn. The clock of the provider is real: tokens stay valid. */
async function anHourLater(services = server.app.services): Promise<void> {
  await server.db.write((tx) => tx.run("UPDATE provider_grants SET next_at = 0"));
  await checkLeavers(services);
}
const isIn = async (browser: Browser) => (await browser.send("GET", "/api/user/")).status === 200;
const leaving = async (of: "installation" | "organization" = "installation") => {
  const token = of === "installation" ? staff : owner;
  const path = of === "installation" ? "/api/" : "/api/org/acme/";
  const answer = await server.send("GET", `${path}identity_providers/`, { token });
  return v.parse(v.array(v.looseObject({ leaving: v.nullable(v.string()) })), answer.json)[0]?.leaving;
};
const grants = () => server.db.all("SELECT token_sealed, next_at FROM provider_grants");

describe.each(["installation", "organization"] as const)("a provider of the %s", (of) => {
  test("that gives a refresh token is asked: who is there stays, who left is signed out", async () => {
    await add(of);
    expect(await leaving(of)).toBeNull();
    const browser = await signIn();
    expect(await leaving(of)).toBe("hourly");
    for (let hours = 0; hours < 3; hours++) await anHourLater();
    expect(await isIn(browser)).toBe(true);
    provider.remove("ada-1");
    await anHourLater();
    expect(await isIn(browser)).toBe(false);
    expect(await grants()).toEqual([]);
    expect((await server.db.all("SELECT type FROM events WHERE type = 'user.left_provider'")).length).toBe(1);
    expect(await isIn(await signInBrowser(server))).toBe(true);
  });

  test.skipIf(onPostgres)(
    "a person whose name there an earlier version stored with a null character leaves, too",
    async () => {
      await add(of, { roles: [], node_groups: [{ group: "staff", organization: "acme", node_group: "db" }] });
      const browser = await signIn();
      const [grant] = await providerGrants.all(server.db, {});
      if (grant === undefined) throw new Error("there is no grant");
      const { secretKey } = server.app.services;
      const token = openSecret(secretKey, grant.tokenSealed, grantContext(grant.providerId, grant.subject));
      const sealed = sealSecret(secretKey, token, grantContext(grant.providerId, "ada\0-1"));
      await server.db.write(async (tx) => {
        await tx.run("UPDATE provider_grants SET subject = 'ada' || char(0) || '-1', token_sealed = $1", [
          sealed,
        ]);
        for (const table of ["identities", "organization_identities"])
          await tx.run(`UPDATE ${table} SET subject = 'ada' || char(0) || '-1'`);
      });
      provider.remove("ada-1");
      await anHourLater();
      expect(await isIn(browser)).toBe(false);
      expect(await grants()).toEqual([]);
      for (const table of ["identities", "organization_identities"])
        expect(await server.db.all(`SELECT groups FROM ${table} WHERE groups <> '[]'`)).toEqual([]);
    },
  );

  test("that is away ends nothing, and is asked again within minutes", async () => {
    await add(of);
    const browser = await signIn();
    provider.failsWith = 503;
    await anHourLater();
    expect(await isIn(browser)).toBe(true);
    provider.failsWith = undefined;
    await anHourLater();
    expect((await grants()).length).toBe(1);
    await provider.stop();
    await anHourLater();
    expect(await isIn(browser)).toBe(true);
    const [grant] = await grants();
    expect(Number(grant?.["next_at"])).toBeLessThan(server.clock.ms + hour / 4);
  });

  test("takes a role within the hour when the group is lost", async () => {
    await add(of, { creates_users: of === "installation" });
    const browser = await signIn();
    expect((await browser.send("GET", "/api/org/acme/")).status).toBe(200);
    provider.change({ ...ada, groups: [] });
    await anHourLater();
    expect(await server.db.all("SELECT 1 FROM memberships WHERE user_id > 2 AND org_id = 1")).toEqual([]);
    expect((await browser.send("GET", "/api/org/acme/")).status).not.toBe(200);
  });

  test.each([true, false])(
    "revokes the nodes of a person who left only where that is set: %p",
    async (isSet) => {
      await server.send("PATCH", "/api/org/acme/", { token: owner, body: { revoke_leaver_nodes: isSet } });
      await add(of);
      await signIn();
      const own = await registerNode(server, acme, "laptop");
      const other = await registerNode(server, acme, "server");
      const user = await server.db.get("SELECT email FROM users WHERE password_hash = ''");
      const body = { owner: String(user?.["email"]) };
      await server.send("POST", `/api/org/acme/nodes/${own.id}/transfer/`, { token: owner, body });
      provider.remove("ada-1");
      await anHourLater();
      const stateOf = async (id: number) =>
        (await server.db.get("SELECT state FROM nodes WHERE id = $1", [id]))?.["state"];
      expect([await stateOf(own.id), await stateOf(other.id)]).toEqual([
        isSet ? "revoked" : "active",
        "active",
      ]);
    },
  );

  test("and the nodes of a person follow what it says of groups that the policy names", async () => {
    await add(of);
    provider.person = { ...ada, groups: ["staff", "dba"] };
    await signIn();
    const laptop = await registerNode(server, acme, "laptop");
    const user = await server.db.get("SELECT email FROM users WHERE password_hash = ''");
    const send = (path: string, body: object) =>
      server.send("POST", `/api/org/acme/${path}`, { token: owner, body });
    await send(`nodes/${laptop.id}/transfer/`, { owner: String(user?.["email"]) });
    const applied = await send("policy/apply/", { policy: 'groups:\n  db: {members: ["idp:dba"]}\n' });
    expect(applied.status).toBe(200);
    const isInDb = async () =>
      certificateOf(downloadOf(await laptop.download()), server.clock.ms).groups.includes("db");
    expect(await isInDb()).toBe(true);
    provider.change(ada);
    await anHourLater();
    expect(await isInDb()).toBe(false);
    // A node that comes later has what was said last.
    const later = await registerNode(server, acme, "later");
    await send(`nodes/${later.id}/transfer/`, { owner: String(user?.["email"]) });
    expect(certificateOf(downloadOf(await later.download()), server.clock.ms).groups).not.toContain("db");
  });

  test("and the nodes of a person who left lose its groups, where they stay", async () => {
    const node_groups = [{ group: "dba", organization: "acme", node_group: "given" }];
    await add(of, { node_groups });
    provider.person = { ...ada, groups: ["staff", "dba"] };
    await signIn();
    const laptop = await registerNode(server, acme, "laptop");
    const user = await server.db.get("SELECT email FROM users WHERE password_hash = ''");
    const send = (path: string, body: object) =>
      server.send("POST", `/api/org/acme/${path}`, { token: owner, body });
    await send(`nodes/${laptop.id}/transfer/`, { owner: String(user?.["email"]) });
    expect((await send("policy/apply/", { policy: 'groups:\n  db: {members: ["idp:dba"]}\n' })).status).toBe(
      200,
    );
    await signIn();
    const groups = async () =>
      certificateOf(downloadOf(await laptop.download()), server.clock.ms).groups.filter(
        (name) => name === "given" || name === "db" || name.startsWith("idp:"),
      );
    expect(await groups()).toHaveLength(3);
    provider.remove("ada-1");
    // The first write claims the person, the second one ends everything.
    await anHourLater(killedAfterWrites(server.app.services, 2));
    expect(await groups()).toEqual([]);
  });
});

test("a provider without a refresh token is shown as such, and sessions end after a day", async () => {
  await add("installation", { scopes: "openid email groups" });
  const browser = await signIn();
  expect(await leaving()).toBe("daily");
  expect(await grants()).toEqual([]);
  provider.remove("ada-1");
  await anHourLater();
  expect(await isIn(browser)).toBe(true);
  server.clock.ms += 11 * hour;
  expect(await isIn(browser)).toBe(true);
  server.clock.ms += 11 * hour;
  expect(await isIn(browser)).toBe(true);
  server.clock.ms += 3 * hour;
  expect(await isIn(browser)).toBe(false);
});

test("a user with a password keeps what did not begin at the provider", async () => {
  await add("installation", { roles: [] });
  const browser = await signIn();
  const hash = "(SELECT password_hash FROM users WHERE id = 1)";
  await server.db.write((tx) =>
    tx.run(`UPDATE users SET password_hash = ${hash} WHERE email = 'ada@example.org'`),
  );
  const local = await signInBrowser(server, "ada@example.org");
  provider.remove("ada-1");
  await anHourLater();
  expect([await isIn(browser), await isIn(local)]).toEqual([false, true]);
});

test("a user with a password loses the roles that the groups of the provider left behind gave", async () => {
  await add();
  await signIn();
  await server.db.write((tx) => tx.run("UPDATE users SET password_hash = 'x' WHERE email = $1", [ada.email]));
  const roles = () => server.db.all("SELECT email, role FROM memberships WHERE email = $1", [ada.email]);
  expect(await roles()).toEqual([{ email: ada.email, role: "member" }]);
  provider.remove("ada-1");
  await anHourLater(killedAfterWrites(server.app.services, 2));
  expect(await roles()).toEqual([]);
  // Back again, by a sign-in.
  await signIn();
  expect(await roles()).toEqual([{ email: ada.email, role: "member" }]);
});

test("a person who is not there any more may come back, and is asked for again", async () => {
  await add();
  await signIn();
  provider.remove("ada-1");
  await anHourLater();
  const again = await signIn();
  await anHourLater();
  expect([await isIn(again), (await grants()).length]).toEqual([true, 1]);
});

test("the token is sealed, and in no log", async () => {
  await add();
  await signIn();
  await anHourLater();
  const [grant] = await grants();
  expect(String(grant?.["token_sealed"])).toMatch(/^s1\./);
  expect(server.log.join("\n")).not.toMatch(/[\w-]{43}/);
});

test("an identity that is unlinked while the provider is asked gets no role by the answer", async () => {
  provider.person = { ...ada, groups: [] };
  await add();
  await signIn();
  await server.db.write((tx) => tx.run("UPDATE provider_grants SET next_at = 0"));
  const claims = { ...ada };
  const refresh = async () => {
    for (const table of ["provider_grants", "identities"])
      await server.db.write((tx) => tx.run(`DELETE FROM ${table}`));
    return { account: "there", claims, isWhole: true, refreshToken: undefined } as const;
  };
  await checkLeavers({ ...server.app.services, exchange: { refresh } });
  expect(await server.db.all("SELECT 1 FROM memberships WHERE user_id > 2")).toEqual([]);
});

test("a command line that was let in by the session of a person who left then gets nothing", async () => {
  await add();
  const browser = await signIn();
  // Another way in, so the user stays.
  await server.db.write((tx) => tx.run("UPDATE users SET password_hash = 'x' WHERE email = $1", [ada.email]));
  const post = (path: string, body: object) => server.send("POST", path, { body });
  const begun = await post("/api/device/", { machine: "build" });
  const codes = v.parse(v.object({ device_code: v.string(), user_code: v.string() }), begun.json);
  server.clock.ms += 1000;
  const decided = await browser.send("POST", "/api/user/device_requests/decide/", {
    body: { user_code: codes.user_code, approve: true },
  });
  expect(decided.status).toBe(204);
  provider.remove("ada-1");
  await anHourLater();
  expect(await isIn(browser)).toBe(false);
  const polled = await post("/api/device/token/", { device_code: codes.device_code });
  expect([polled.status, polled.json]).toMatchObject([403, { code: "sign_in_expired" }]);
});
