// The command line, signed in by a browser that a provider of identities signed in: it ends with that session, and with the
// identity.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import * as v from "valibot";
import { DeviceSignIn } from "../../../src/api/command-line.ts";
import type { Browser } from "../../support/browser-session.ts";
import { startIdentityProvider, type IdentityProvider } from "../../support/oidc.ts";
import { addProvider, callback, makeSignInServer, sessionIn, signInBy } from "../../support/oidc-sign-in.ts";
import { makeAcme, pair } from "../../support/people.ts";
import type { Answer, TestServer } from "../../support/server.ts";

const hour = 3_600_000;
let provider: IdentityProvider;
let server: TestServer;
let browser: Browser;

beforeAll(async () => {
  provider = await startIdentityProvider([callback()]);
});
afterAll(() => provider[Symbol.asyncDispose]());
beforeEach(async () => {
  server = await makeSignInServer();
  await makeAcme(server);
  provider.person = { sub: "ada-1", email: "ada@example.org", email_verified: true };
  await addProvider(server, provider, { creates_users: true });
  browser = sessionIn(server, await signInBy(server));
  server.clock.ms += 1000;
});
afterEach(() => server[Symbol.asyncDispose]());

const post = (path: string, body: object) => server.send("POST", path, { body });
const refresh = (token: string) => post("/api/token/refresh/", { refresh: token });
const codeOf = ({ status, json }: Answer) => [status, (json as { code?: string } | undefined)?.code];

async function begin(): Promise<() => Promise<Answer>> {
  const { device_code, user_code } = v.parse(
    DeviceSignIn,
    (await post("/api/device/", { machine: "build-3" })).json,
  );
  const body = { user_code, approve: true };
  expect((await browser.send("POST", "/api/user/device_requests/decide/", { body })).status).toBe(204);
  return () => post("/api/device/token/", { device_code });
}

async function beginHere(): Promise<() => Promise<Answer>> {
  const code_verifier = "v".repeat(43);
  const code_challenge = createHash("sha256").update(code_verifier).digest("base64url");
  const made = await browser.send("POST", "/api/user/login_codes/", { body: { code_challenge } });
  const { code } = v.parse(v.object({ code: v.string() }), made.json);
  return () => post("/api/token/code/", { code, code_verifier });
}

const deleteProvider = async () => {
  const token = await server.person("staff@example.org", { isStaff: true });
  return (await server.send("DELETE", "/api/identity_providers/1/", { token })).status;
};
const unlink = async () => {
  await server.db.write((tx) =>
    tx.run("UPDATE users SET password_hash = 'x' WHERE email = 'ada@example.org'"),
  );
  return (await browser.send("DELETE", "/api/user/identities/1/")).status;
};

describe.each([
  ["with a code on any machine", begin],
  ["on the same machine", beginHere],
] as const)("%s", (_, start) => {
  test("ends a day after the sign-in at the provider, however often it was refreshed", async () => {
    server.clock.ms += hour;
    const end = await start();
    let last = pair(await end());
    for (let passed = 1; passed < 23; passed += 11) {
      server.clock.ms += 11 * hour;
      last = pair(await refresh(last.refresh));
    }
    server.clock.ms += hour;
    expect(codeOf(await refresh(last.refresh))).toEqual([401, "token_not_valid"]);
  });

  test.each([
    ["the provider is deleted", deleteProvider],
    ["the identity is unlinked", unlink],
  ] as const)("ends when %s", async (_what, act) => {
    const { refresh: token } = pair(await (await start())());
    expect(await act()).toBe(204);
    expect(codeOf(await refresh(token))).toEqual([401, "token_not_valid"]);
  });

  test.each([
    ["the provider was deleted", deleteProvider],
    ["the identity was unlinked", unlink],
  ] as const)("gives nothing if %s since the browser agreed", async (_what, act) => {
    const end = await start();
    expect(await act()).toBe(204);
    expect(codeOf(await end())).toEqual([403, "sign_in_expired"]);
  });
});
