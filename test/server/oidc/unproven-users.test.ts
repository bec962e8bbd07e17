// Nodes of users whose provider, a real one, gives no token to ask by: they end a day after the last sign-in, if so set.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { endUnproven } from "../../../src/server/oidc/unproven-users.ts";
import { checkLeavers } from "../../../src/server/oidc/gone-at-provider.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { registerNode } from "../../support/nodes.ts";
import { startIdentityProvider, type IdentityProvider } from "../../support/oidc.ts";
import { addProvider, callback, makeSignInServer, signInBy, whereTo } from "../../support/oidc-sign-in.ts";
import { makeAcme } from "../../support/people.ts";
import type { TestServer } from "../../support/server.ts";

const hourMs = 3_600_000;
const ada = { sub: "ada-1", email: "ada@example.org", email_verified: true, groups: ["staff"] };
let provider: IdentityProvider;
let server: TestServer;
let acme: Organization;
let owner: string;

beforeEach(async () => {
  provider = await startIdentityProvider([callback()]);
  server = await makeSignInServer();
  ({ acme, owner } = await makeAcme(server));
  provider.person = ada;
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
  await provider[Symbol.asyncDispose]();
});

const send = (method: "POST" | "PATCH" | "DELETE", path: string, body: object = {}) =>
  server.send(method, `/api/org/acme/${path}`, { token: owner, body });
const set = (isSet: boolean) => send("PATCH", "", { revoke_unproven_nodes: isSet });
async function signIn(): Promise<void> {
  expect(whereTo(await signInBy(server))).toEqual([303, "/console/"]);
}
/** Ada signs in; the laptop is hers. Returns its id. */
async function laptopOfAda(
  of: "installation" | "organization",
  scopes = "openid email groups",
): Promise<number> {
  const roles = [{ group: "staff", organization: "acme", role: "member" as const }];
  const orgId = of === "installation" ? null : acme.id;
  await addProvider(server, provider, { creates_users: true, roles, scopes }, { orgId });
  await signIn();
  const { id } = await registerNode(server, acme, "laptop");
  await registerNode(server, acme, "server");
  await give(id);
  return id;
}
async function give(id: number): Promise<void> {
  const user = await server.db.get(
    "SELECT email FROM users WHERE id NOT IN (SELECT id FROM users WHERE password_hash <> '')",
  );
  expect((await send("POST", `nodes/${id}/transfer/`, { owner: String(user?.["email"]) })).status).toBe(200);
}
/** The clock of the provider is real: instead of it, what is stored gets older. */
async function pass(hours: number, isUp = true): Promise<void> {
  const ms = hours * hourMs;
  const columns = [
    ["identities", "last_used_at"],
    ["organization_identities", "last_used_at"],
    ["users", "last_login_at"],
    ["owner_proofs", "given_at"],
    ["organizations", "revoke_unproven_from"],
    ["identity_providers", "held_until"],
  ] as const;
  for (const [table, name] of columns)
    await server.db.write((tx) => tx.run(`UPDATE ${table} SET ${name} = ${name} - ${ms}`));
  const meta = `UPDATE meta SET value = CAST(CAST(value AS BIGINT) - ${ms} AS TEXT) WHERE key = 'unproven_watch'`;
  if (!isUp) await server.db.write((tx) => tx.run(meta));
  await endUnproven(server.app.services);
}
const active = async () =>
  (await server.db.all("SELECT name FROM nodes WHERE state = 'active' ORDER BY name")).map(
    ({ name }) => name,
  );
const both = ["laptop", "server"];

test.each(["installation", "organization"] as const)(
  "they end 24 hours after the last sign-in by a provider of the %s, with the reason",
  async (of) => {
    await laptopOfAda(of);
    await set(true);
    await endUnproven(server.app.services);
    await pass(23);
    expect(await active()).toEqual(both);
    await signIn();
    await pass(23);
    expect(await active()).toEqual(both);
    await pass(2);
    expect(await active()).toEqual(["server"]);
    const [revoked] = await server.db.all("SELECT actor, after FROM events WHERE type = 'node.revoked'");
    expect(String(revoked?.["after"])).toContain("did not sign in for 24 hours");
  },
);

test("they are kept where that is not set, and end no sooner than a day after it is set", async () => {
  await laptopOfAda("installation");
  await pass(100);
  expect(await active()).toEqual(both);
  await set(true);
  await endUnproven(server.app.services);
  await pass(23);
  expect(await active()).toEqual(both);
  await pass(2);
  expect(await active()).toEqual(["server"]);
});

test.each([
  [
    "a password",
    "UPDATE users SET password_hash = (SELECT password_hash FROM users WHERE id = 1) WHERE password_hash = ''",
  ],
  [
    "a passkey",
    `INSERT INTO passkeys (user_id, credential_id, public_key, counter, transports, name, rp_id, created_at)
     SELECT id, 'c', 'k', 0, '', 'key', 'control.example', 1 FROM users WHERE password_hash = ''`,
  ],
])("a user with %s keeps them", async (_, sql) => {
  await laptopOfAda("installation");
  await server.db.write((tx) => tx.run(sql));
  await set(true);
  await endUnproven(server.app.services);
  await pass(48);
  expect(await active()).toEqual(both);
});

test("a user whose provider is asked every hour keeps them while the provider knows the user", async () => {
  await laptopOfAda("installation", "openid email groups offline_access");
  await set(true);
  await endUnproven(server.app.services);
  await pass(48);
  expect(await active()).toEqual(both);
  provider.remove("ada-1");
  await server.db.write((tx) => tx.run("UPDATE provider_grants SET next_at = 0"));
  await checkLeavers(server.app.services);
  await endUnproven(server.app.services);
  expect(await active()).toEqual(["server"]);
});

test("a provider that is away ends nothing, and its users get a day when it answers again", async () => {
  await laptopOfAda("organization");
  await set(true);
  await endUnproven(server.app.services);
  await provider.stop();
  server.clock.ms += 11 * 60_000;
  await pass(24);
  await pass(48);
  expect(await active()).toEqual(both);
  await provider.start();
  server.clock.ms += 11 * 60_000;
  await pass(23);
  expect(await active()).toEqual(both);
  await pass(2);
  expect(await active()).toEqual(["server"]);
});

test("after a pause of the server everybody gets a day", async () => {
  await laptopOfAda("installation");
  await set(true);
  await endUnproven(server.app.services);
  await pass(30, false);
  expect(await active()).toEqual(both);
  await pass(23);
  expect(await active()).toEqual(both);
  await pass(2);
  expect(await active()).toEqual(["server"]);
});

test("a node that is restored or transferred has a day from then on; a confirmation is no sign-in", async () => {
  const id = await laptopOfAda("installation");
  await set(true);
  await endUnproven(server.app.services);
  await pass(25);
  expect((await send("POST", `nodes/${id}/restore/`)).status).toBe(200);
  await pass(23);
  expect(await active()).toEqual(both);
  await send("POST", `nodes/${id}/transfer/`, { owner: null });
  await give(id);
  await pass(23);
  expect(await active()).toEqual(both);
  await server.db.write((tx) => tx.run(`UPDATE owner_proofs SET proven_at = ${server.clock.ms}`));
  await pass(2);
  expect(await active()).toEqual(["server"]);
});

test("they end when the provider was deleted: nobody can sign in there any more", async () => {
  await laptopOfAda("organization");
  await set(true);
  await endUnproven(server.app.services);
  expect((await send("DELETE", "identity_providers/1/")).status).toBe(204);
  await pass(23);
  expect(await active()).toEqual(both);
  await pass(2);
  expect(await active()).toEqual(["server"]);
});
