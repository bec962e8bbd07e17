// Signing in: access and refresh tokens, their lifetimes, what ends them. guesses.test.ts has the limits of guesses.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { AppError } from "../../../../src/base/errors.ts";
import { openSecret } from "../../../../src/pki/secrets.ts";
import { makeTokenSigner, SigningKey } from "../../../../src/pki/tokens.ts";
import { operator } from "../../../../src/server/audit/record.ts";
import { createUser } from "../../../../src/server/users/users.ts";
import { setPassword } from "../../../../src/server/users/sign-in/set-password.ts";
import { signIn as prove, type Proven } from "../../../../src/server/users/sign-in/sign-in.ts";
import { setActive } from "../../../../src/server/offboarding/user-status.ts";
import { makeAcme, pair, signInTo } from "../../../support/people.ts";
import { makeTestServer, password, type TestServer } from "../../../support/server.ts";

const origin = { address: "192.0.2.1", cookies: "", device: "" };
let server: TestServer;

beforeEach(async () => {
  server = await makeTestServer();
  await makeAcme(server);
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

const signIn = (email: string, secret?: string, address?: string) => signInTo(server, email, secret, address);
const refresh = (token: string) => server.send("POST", "/api/token/refresh/", { body: { refresh: token } });
const whoAmI = (token: string) => server.send("GET", "/api/user/", { token });

describe("signing in", () => {
  test("gives a pair whose access token opens the API", async () => {
    const { access } = pair(await signIn("OWNER@example.org"));
    expect((await whoAmI(access)).json).toEqual({
      id: 1,
      email: "owner@example.org",
      is_staff: false,
      server_version: "0.0.0-source",
    });
    const [head = "", body = ""] = access.split(".");
    expect(JSON.parse(Buffer.from(head, "base64url").toString())).toEqual({
      alg: "EdDSA",
      typ: "JWT",
      kid: expect.any(String),
    });
    const claims: unknown = JSON.parse(Buffer.from(body, "base64url").toString());
    expect(Object.keys(v.parse(v.record(v.string(), v.unknown()), claims)).sort()).toEqual(
      ["aud", "exp", "family", "iat", "iss", "jti", "token_type", "user_id"].sort(),
    );
  });

  test("an unknown address, a wrong password and a disabled user get the same answer", async () => {
    await server.person("off@example.org");
    await setActive(server.app.services, "off@example.org", false, operator);
    const answers = [
      await signIn("nobody@example.org"),
      await signIn("owner@example.org", "not the password"),
      await signIn("off@example.org"),
    ];
    for (const each of answers) expect([each.status, each.json]).toEqual([401, answers[0]?.json]);
    expect(answers[0]?.text).toContain("invalid_credentials");
  });

  test("an access token lives 15 minutes", async () => {
    const { access } = pair(await signIn("owner@example.org"));
    server.clock.ms += 899_000;
    expect((await whoAmI(access)).status).toBe(200);
    server.clock.ms += 2000;
    expect((await whoAmI(access)).status).toBe(401);
  });

  test("access tokens and refresh tokens cannot replace each other", async () => {
    const tokens = pair(await signIn("owner@example.org"));
    expect((await whoAmI(tokens.refresh)).status).toBe(401);
    expect((await refresh(tokens.access)).status).toBe(401);
  });
});

test.each([
  ["the password is changed", () => setPassword(server.app.services, 1, "another password", operator)],
  ["the user is disabled", () => setActive(server.app.services, "owner@example.org", false, operator)],
])("a sign-in during which %s gives no session", async (_, meanwhile) => {
  const { services } = server.app;
  await server.person("staff@example.org", { isStaff: true });
  const proven = await prove(services, { email: "owner@example.org", password }, origin);
  await meanwhile();
  const started = services.sessions.start(proven.userId, proven.passwordHash);
  expect(await started.catch((error: unknown) => error)).toMatchObject({ code: "invalid_credentials" });
  expect(
    await server.db.all("SELECT 1 FROM refresh_tokens WHERE user_id = 1 AND revoked_at IS NULL"),
  ).toEqual([]);
});

describe("refresh tokens", () => {
  test("each works once; a second use revokes the whole family", async () => {
    const first = pair(await signIn("owner@example.org"));
    const second = pair(await refresh(first.refresh));
    expect((await refresh(first.refresh)).status).toBe(401);
    expect((await refresh(second.refresh)).status).toBe(401);
    const another = pair(await signIn("owner@example.org"));
    expect((await refresh(another.refresh)).status).toBe(200);
  });

  test("used twice at the same instant, at most one request gets a pair", async () => {
    const first = pair(await signIn("owner@example.org"));
    const answers = await Promise.all(Array.from({ length: 8 }, () => refresh(first.refresh)));
    const won = answers.filter((each) => each.status === 200);
    expect(won.length).toBe(1);
    const [winner] = won;
    if (winner !== undefined) expect((await refresh(pair(winner).refresh)).status).toBe(401);
  });

  test("they end with sign-out, after a day, with a new password, and when the user is disabled", async () => {
    const ended = [];
    for (const end of [
      async (token: string) =>
        void (await server.send("POST", "/api/token/revoke/", { body: { refresh: token } })),
      async () => void (server.clock.ms += 86_401_000),
      () => setPassword(server.app.services, 1, password, operator),
      () => setActive(server.app.services, "owner@example.org", false, operator),
    ]) {
      const { refresh: token } = pair(await signIn("owner@example.org"));
      await end(token);
      ended.push((await refresh(token)).status);
      server.clock.ms += 1000;
    }
    expect(ended).toEqual([401, 401, 401, 401]);
  });
});

describe("a sign-in ends after 90 days, however often its tokens are refreshed", () => {
  const endMs = 90 * 86_400_000;
  /** Refreshes often enough that no token expires; returns the last refresh token. */
  const refreshUntil = async (token: string, end: number) => {
    let last = token;
    while (server.clock.ms < end) {
      server.clock.ms = Math.min(end, server.clock.ms + 86_000_000);
      last = pair(await refresh(last)).refresh;
    }
    return last;
  };

  test("with an error that says so, and no access token outlives it", async () => {
    const { clock } = server;
    const end = clock.ms + endMs;
    const last = await refreshUntil(pair(await signIn("owner@example.org")).refresh, end - 100_000);
    clock.ms = end - 60_000;
    const { access, refresh: token } = pair(await refresh(last));
    clock.ms = end - 1000;
    expect((await whoAmI(access)).status).toBe(200);
    clock.ms = end;
    expect((await whoAmI(access)).status).toBe(401);
    const ended = await refresh(token);
    expect([ended.status, ended.json]).toEqual([
      401,
      expect.objectContaining({
        code: "token_not_valid",
        detail: "This session ended 90 days after its sign-in. Sign in again.",
      }),
    ]);
    const again = pair(await signIn("owner@example.org"));
    expect((await refresh(again.refresh)).status).toBe(200);
  });

  test("a chain without an end, of the release before, gets one with its next use", async () => {
    const { refresh: token } = pair(await signIn("owner@example.org"));
    await server.db.write((tx) => tx.run("UPDATE refresh_tokens SET ends_at = NULL"));
    server.clock.ms += 43_200_000;
    const end = server.clock.ms + endMs;
    const last = await refreshUntil(pair(await refresh(token)).refresh, end - 1);
    server.clock.ms = end;
    expect((await refresh(last)).text).toContain("90 days after its sign-in");
  });
});

test("disabling a user, or a new password, invalidates access tokens at once", async () => {
  const { access } = pair(await signIn("owner@example.org"));
  expect((await whoAmI(access)).status).toBe(200);
  await setActive(server.app.services, "owner@example.org", false, operator);
  expect((await whoAmI(access)).status).toBe(401);
  await setActive(server.app.services, "owner@example.org", true, operator);
  server.clock.ms += 1000;
  const again = pair(await signIn("owner@example.org")).access;
  server.clock.ms += 2000;
  const changed = await server.send("POST", "/api/user/password/", {
    token: again,
    body: { current_password: password, new_password: "another long one" },
  });
  expect(changed.status).toBe(204);
  expect((await whoAmI(again)).status).toBe(401);
  expect((await signIn("owner@example.org", "another long one")).status).toBe(200);
  // As in all events of users: a search of the log by the address finds it.
  const sql = "SELECT subject FROM events WHERE type = 'user.password_changed'";
  expect(await server.db.all(sql, [])).toEqual([{ subject: "user/owner@example.org" }]);
});

test("a password change fails if the operator changes or disables the user meanwhile", async () => {
  const { services } = server.app;
  const credentials = { email: "owner@example.org", password };
  const codeOf = (error: unknown) => (error instanceof AppError ? error.code : error);
  const choose = (proven: Proven) => setPassword(services, 1, "the attacker's choice", operator, proven);
  const first = await prove(services, credentials, origin);
  await setPassword(services, 1, "the operator's choice", operator);
  expect(await choose(first).catch(codeOf)).toBe("invalid_credentials");
  const proven = await prove(services, { ...credentials, password: "the operator's choice" }, origin);
  await setActive(services, "owner@example.org", false, operator);
  expect(await choose(proven).catch(codeOf)).toBe("invalid_credentials");
  await setActive(services, "owner@example.org", true, operator);
  expect((await signIn("owner@example.org", "the operator's choice")).status).toBe(200);
  // Through the API.
  const { access } = pair(await signIn("owner@example.org", "the operator's choice"));
  const body = { current_password: "the operator's choice", new_password: "their own choice" };
  expect((await server.send("POST", "/api/user/password/", { token: access, body })).status).toBe(204);
  expect((await signIn("owner@example.org", "their own choice")).status).toBe(200);
});

test("a token does not open another user that later gets the same id", async () => {
  const lost = await server.person("lost@example.org");
  const { id } = v.parse(v.object({ id: v.number() }), (await whoAmI(lost)).json);
  server.clock.ms += 1000;
  await server.db.write(async (tx) => {
    await tx.run("DELETE FROM refresh_tokens WHERE user_id = $1", [id]);
    await tx.run("DELETE FROM browser_sessions WHERE user_id = $1", [id]);
    await tx.run("UPDATE users SET id = id + 1000 WHERE id = $1", [id]);
  });
  const { services } = server.app;
  const account = { email: "new@example.org", password, isStaff: true };
  const made = await createUser(services, account, operator);
  await server.db.write(async (tx) => {
    await tx.run("UPDATE users SET id = $2 WHERE id = $1", [made.id, id]);
    await tx.notify("auth", `user ${id}`);
  });
  expect((await whoAmI(lost)).status).toBe(401);
  expect((await whoAmI(pair(await signIn("new@example.org")).access)).status).toBe(200);
});

describe("tokens signed before the end of all sessions are invalid, later ones are valid", () => {
  // In the middle of a second: whole seconds would be too coarse.
  beforeEach(() => void (server.clock.ms = Math.floor(server.clock.ms / 1000) * 1000 + 500));
  const change = () => setPassword(server.app.services, 1, password, operator);

  test("to the millisecond", async () => {
    const { access, refresh: token } = pair(await signIn("owner@example.org"));
    const next = pair(await refresh(token)).access;
    server.clock.ms += 1;
    await change();
    expect([(await whoAmI(access)).status, (await whoAmI(next)).status]).toEqual([401, 401]);
    server.clock.ms += 1;
    const after = pair(await signIn("owner@example.org"));
    expect((await whoAmI(after.access)).status).toBe(200);
    expect((await whoAmI(pair(await refresh(after.refresh)).access)).status).toBe(200);
  });

  test("also with a clock that was ahead", async () => {
    server.clock.ms += 86_400_000;
    const ahead = pair(await signIn("owner@example.org"));
    server.clock.ms += 1000;
    const later = pair(await refresh(ahead.refresh)).access;
    server.clock.ms -= 86_401_000;
    expect([(await whoAmI(ahead.access)).status, (await whoAmI(later)).status]).toEqual([200, 200]);
    await change();
    expect([(await whoAmI(ahead.access)).status, (await whoAmI(later)).status]).toEqual([401, 401]);
    expect((await whoAmI(pair(await signIn("owner@example.org")).access)).status).toBe(200);
  });

  test("also within one millisecond", async () => {
    for (let turn = 0; turn < 3; turn++) {
      const { access } = pair(await signIn("owner@example.org"));
      expect((await whoAmI(access)).status).toBe(200);
      await change();
      expect((await whoAmI(access)).status).toBe(401);
    }
  });

  test("also for the docs pages", async () => {
    await server.person("staff@example.org", { isStaff: true });
    const docs = async () => {
      const body = { email: "staff@example.org", password };
      const { headers } = await server.send("POST", "/api/docs/sign_in/", { body });
      return { Cookie: (headers.get("set-cookie") ?? "").split(";")[0] ?? "" };
    };
    const before = await docs();
    expect((await server.send("GET", "/api/docs/", { headers: before })).status).toBe(200);
    server.clock.ms += 1;
    await setPassword(server.app.services, 2, password, operator);
    expect((await server.send("GET", "/api/docs/", { headers: before })).status).toBe(401);
    expect((await server.send("GET", "/api/docs/", { headers: await docs() })).status).toBe(200);
  });

  test("a token of an older version, with whole seconds, counts from the start of its second", async () => {
    const row = await server.db.get("SELECT value FROM meta WHERE key = 'jwt_key'");
    const key = openSecret(server.app.services.secretKey, String(row?.["value"]), "jwt_key");
    const signer = await makeTokenSigner(v.parse(v.pipe(v.string(), v.parseJson(), SigningKey), key));
    const iat = Math.floor(server.clock.ms / 1000);
    const old = await signer.sign({
      token_type: "access",
      user_id: "1",
      jti: "0123456789abcdef",
      iat,
      exp: iat + 900,
    });
    expect((await whoAmI(old)).status).toBe(200);
    await change();
    expect((await whoAmI(old)).status).toBe(401);
  });
});
