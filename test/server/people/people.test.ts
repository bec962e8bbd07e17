import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { openSecret } from "../../../src/pki/secrets.ts";
import { makeTokenSigner, SigningKey } from "../../../src/pki/tokens.ts";
import { TokenPair } from "../../../src/protocol.ts";
import { operator } from "../../../src/server/operation/events.ts";
import { offerFirstAccount } from "../../../src/server/people/first-account.ts";
import { NewMember, removeMember } from "../../../src/server/people/members.ts";
import type { Organization } from "../../../src/server/policy/organizations.ts";
import { createUser, setActive, setPassword, signIn as prove } from "../../../src/server/people/people.ts";
import { textOf } from "../../../src/server/store/database.ts";
import { makeTestServer, password, type Answer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let acme: Organization;
let owner = "";

beforeEach(async () => {
  server = await makeTestServer();
  acme = await server.organization("acme");
  owner = await server.person("owner@example.org");
  await server.join(acme, "owner@example.org", "owner");
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

const signIn = (email: string, secret = password, address = "192.0.2.1") =>
  server.send("POST", "/api/token/", { body: { email, password: secret }, address });
const pair = (answer: Answer) => v.parse(TokenPair, answer.json);
const refresh = (token: string) => server.send("POST", "/api/token/refresh/", { body: { refresh: token } });
const whoAmI = (token: string) => server.send("GET", "/api/user/", { token });

describe("signing in", () => {
  test("gives a pair whose access token opens the API", async () => {
    const { access } = pair(await signIn("OWNER@example.org"));
    expect((await whoAmI(access)).json).toEqual({ id: 1, email: "owner@example.org", is_staff: false });
    const [head = "", body = ""] = access.split(".");
    expect(JSON.parse(Buffer.from(head, "base64url").toString())).toEqual({
      alg: "EdDSA",
      typ: "JWT",
      kid: expect.any(String),
    });
    const claims: unknown = JSON.parse(Buffer.from(body, "base64url").toString());
    expect(Object.keys(v.parse(v.record(v.string(), v.unknown()), claims)).sort()).toEqual(
      ["aud", "exp", "iat", "iss", "jti", "token_type", "user_id"].sort(),
    );
  });

  test("unknown, wrong and disabled are told apart by nothing", async () => {
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

  test("a refresh token is no access token, nor the other way round", async () => {
    const tokens = pair(await signIn("owner@example.org"));
    expect((await whoAmI(tokens.refresh)).status).toBe(401);
    expect((await refresh(tokens.access)).status).toBe(401);
  });
});

describe("throttles", () => {
  test("ten wrong passwords for an account: then 429 for it, for a minute, and nobody else behind the address", async () => {
    await server.person("other@example.org");
    for (let at = 0; at < 10; at++) expect((await signIn("owner@example.org", "wrong!!!")).status).toBe(401);
    const refused = await signIn("owner@example.org");
    expect(refused.status).toBe(429);
    expect(refused.headers.get("retry-after")).toBe("60");
    expect((await signIn("other@example.org")).status).toBe(200);
    server.clock.ms += 60_001;
    expect((await signIn("owner@example.org")).status).toBe(200);
  });

  test("ten accounts guessed at from one address: then 429 for the address alone", async () => {
    for (let at = 0; at < 10; at++) {
      expect((await signIn(`guess${at}@example.org`, "wrong!!!")).status).toBe(401);
    }
    expect((await signIn("owner@example.org")).status).toBe(429);
    expect((await signIn("owner@example.org", password, "192.0.2.99")).status).toBe(200);
  });

  test("an IPv6 network of a customer counts as one address", async () => {
    for (let at = 0; at < 10; at++) {
      const address = `2001:db8:0:7::${at}`;
      expect((await signIn(`guess${at}@example.org`, "wrong!!!", address)).status).toBe(401);
    }
    expect((await signIn("owner@example.org", password, "2001:db8:0:7:ffff::1")).status).toBe(429);
    expect((await signIn("owner@example.org", password, "2001:db8:0:8::1")).status).toBe(200);
  });

  test("a refusal comes before the method and the body are looked at", async () => {
    const tokens = ["/api/token/", "/api/docs/sign_in/"];
    const secrets = ["/api/join/", "/api/setup/"];
    for (let at = 0; at < 10; at++) {
      await signIn(`guess${at}@example.org`, "wrong!!!");
      await server.send("POST", "/api/join/", { body: { secret: `guess${at}`, password } });
    }
    for (const path of [...tokens, ...secrets]) {
      expect((await server.send("POST", path, { raw: "{" })).status).toBe(429);
      expect((await server.send("PUT", path)).status).toBe(429);
      expect((await server.send("POST", path, { raw: "{", address: "192.0.2.99" })).status).toBe(400);
    }
  });

  test("the right password, however often, is never counted", async () => {
    const answers = await Promise.all(Array.from({ length: 16 }, () => signIn("owner@example.org")));
    expect(answers.map((each) => each.status)).toEqual(answers.map(() => 200));
  });

  test("guesses that come all at once get no further than those that come one by one", async () => {
    const answers = await Promise.all(
      Array.from({ length: 24 }, (_, at) => signIn("owner@example.org", `wrong${at}!!!`, `192.0.2.${at}`)),
    );
    // Two are hashed at a time: one more than the limit may be under way when it is reached.
    expect(answers.filter((each) => each.status === 401).length).toBeLessThanOrEqual(11);
    expect(answers.filter((each) => each.status === 429).length).toBeGreaterThanOrEqual(13);
  });
});

test.each([
  ["the password is changed", () => setPassword(server.app.services, 1, "another password", operator)],
  ["the account is disabled", () => setActive(server.app.services, "owner@example.org", false, operator)],
])("a sign-in during which %s gives no session", async (_, meanwhile) => {
  const { services } = server.app;
  await server.person("staff@example.org", { isStaff: true });
  const proven = await prove(services, { email: "owner@example.org", password }, "192.0.2.1");
  await meanwhile();
  const started = services.sessions.start(proven.userId, proven.passwordHash);
  expect(await started.catch((error: unknown) => error)).toMatchObject({ code: "invalid_credentials" });
  expect(
    await server.db.all("SELECT 1 FROM refresh_tokens WHERE user_id = 1 AND revoked_at IS NULL"),
  ).toEqual([]);
});

describe("refresh tokens", () => {
  test("each is good once; used again, the whole family ends", async () => {
    const first = pair(await signIn("owner@example.org"));
    const second = pair(await refresh(first.refresh));
    expect((await refresh(first.refresh)).status).toBe(401);
    expect((await refresh(second.refresh)).status).toBe(401);
    const another = pair(await signIn("owner@example.org"));
    expect((await refresh(another.refresh)).status).toBe(200);
  });

  test("used by two at the same instant: one at most gets a pair", async () => {
    const first = pair(await signIn("owner@example.org"));
    const answers = await Promise.all(Array.from({ length: 8 }, () => refresh(first.refresh)));
    const won = answers.filter((each) => each.status === 200);
    expect(won.length).toBe(1);
    const [winner] = won;
    if (winner !== undefined) expect((await refresh(pair(winner).refresh)).status).toBe(401);
  });

  test("they end with sign-out, a day, a new password, and the account", async () => {
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

test("disabling an account shuts its access token out at once, and a new password too", async () => {
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
});

describe("what was signed up to the end of all sessions is over, what is signed after it counts", () => {
  // In the middle of a second, which is all that a whole number of seconds could tell.
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

  test("within one millisecond too", async () => {
    for (let turn = 0; turn < 3; turn++) {
      const { access } = pair(await signIn("owner@example.org"));
      expect((await whoAmI(access)).status).toBe(200);
      await change();
      expect((await whoAmI(access)).status).toBe(401);
    }
  });

  test("a session of the docs pages too", async () => {
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

  test("a token of before this was told to the millisecond counts as of the beginning of its second", async () => {
    const row = await server.db.get("SELECT value FROM meta WHERE key = 'jwt_key'");
    const key = openSecret(server.app.services.secretKey, textOf(row ?? {}, "value"), "jwt_key");
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

test("the last staff user cannot be disabled", async () => {
  const { services } = server.app;
  await createUser(services, { email: "s1@example.org", password, isStaff: true }, operator);
  await expectConflict(() => setActive(services, "s1@example.org", false, operator));
  await createUser(services, { email: "s2@example.org", password, isStaff: true }, operator);
  await setActive(services, "s1@example.org", false, operator);
  await expectConflict(() => setActive(services, "s2@example.org", false, operator));
});

async function expectConflict(act: () => Promise<unknown>): Promise<void> {
  const failure = await act().then(
    () => undefined,
    (error: unknown) => error,
  );
  expect(failure).toMatchObject({ code: "conflict" });
}

describe("members", () => {
  const members = "/api/org/acme/members/";
  const invite = async (email: string, role = "member", token = owner) =>
    server.send("POST", members, { token, body: { email, role } });
  const secretOf = (answer: Answer) => {
    const { link } = v.parse(NewMember, answer.json);
    const match = /^https:\/\/control\.example\/join\/#([\w-]{43})$/.exec(link ?? "");
    return match?.[1] ?? "";
  };
  const accept = (secret: string, chosen = password) =>
    server.send("POST", "/api/join/", { body: { secret, password: chosen } });

  test("an account that the operator made is a member at once", async () => {
    const token = await server.person("ada@example.org");
    const answer = await invite("ADA@example.org", "admin");
    expect(answer.json).toMatchObject({ email: "ada@example.org", role: "admin", state: "active" });
    expect(answer.text).not.toContain("link");
    expect((await server.send("GET", members, { token })).status).toBe(200);
  });

  test("any other address gets a link that works once, for 72 hours", async () => {
    const secret = secretOf(await invite("new@example.org"));
    expect((await signIn("new@example.org")).status).toBe(401);
    expect((await accept(secret)).json).toEqual({ email: "new@example.org", org_slug: "acme" });
    expect((await accept(secret)).status).toBe(404);
    const { access } = pair(await signIn("new@example.org"));
    const list = await server.send("GET", "/api/org/", { token: access });
    expect(list.json).toMatchObject([{ slug: "acme", role: "member" }]);

    const late = secretOf(await invite("late@example.org"));
    server.clock.ms += 72 * 3_600_000 + 1;
    expect((await accept(late)).status).toBe(404);
  });

  test("inviting an account made by an invitation gains nothing without its password", async () => {
    await accept(secretOf(await invite("new@example.org")));
    const other = await server.organization("other", "10.78.0.0/16");
    const mallory = await server.person("mallory@example.org");
    await server.join(other, "mallory@example.org", "owner");
    const answer = await server.send("POST", "/api/org/other/members/", {
      token: mallory,
      body: { email: "new@example.org", role: "owner" },
    });
    const secret = secretOf(answer);
    expect(secret).not.toBe("");
    expect((await accept(secret, "mallory's own choice")).status).toBe(401);
    expect((await signIn("new@example.org", "mallory's own choice")).status).toBe(401);
    const { access } = pair(await signIn("new@example.org"));
    expect((await server.send("GET", "/api/org/other/", { token: access })).status).toBe(404);
    expect((await accept(secret)).status).toBe(200);
    expect((await server.send("GET", "/api/org/other/", { token: access })).status).toBe(200);
  });

  test("the last owner stays; only owners touch owners", async () => {
    const admin = await server.person("admin@example.org");
    await server.join(acme, "admin@example.org", "admin");
    const ownerPath = `${members}1/`;
    for (const [method, body] of [
      ["PATCH", { role: "member" }],
      ["DELETE", undefined],
    ] as const) {
      expect((await server.send(method, ownerPath, { token: owner, body })).status).toBe(409);
      expect((await server.send(method, ownerPath, { token: admin, body })).status).toBe(403);
    }
    expect((await invite("x@example.org", "owner", admin)).status).toBe(403);
    expect((await invite("heir@example.org", "owner")).status).toBe(201);
    expect((await invite("heir@example.org", "member", admin)).status).toBe(403);
    expect((await invite("heir@example.org")).status).toBe(201);
    expect(
      (await server.send("PATCH", `${members}2/`, { token: owner, body: { role: "owner" } })).status,
    ).toBe(200);
    const by = { role: "owner", actor: operator } as const;
    const both = await Promise.allSettled(
      [1, 2].map((id) => removeMember(server.app.services, acme, id, by)),
    );
    expect(both.map((each) => each.status).sort()).toEqual(["fulfilled", "rejected"]);
  });

  test("no address looks like another, or steers the terminal on which it is shown", async () => {
    for (const hidden of ["\u001b[2J", "\u202e", "\u200b", "\u0085"])
      expect((await invite(`ada${hidden}@example.org`)).status).toBe(400);
    expect((await invite("ädä@exämple.org")).status).toBe(201);
  });

  test("a removed member is out at once", async () => {
    const token = await server.person("ada@example.org");
    const { id } = v.parse(NewMember, (await invite("ada@example.org")).json);
    expect((await server.send("GET", "/api/org/acme/", { token })).status).toBe(200);
    expect((await server.send("DELETE", `${members}${id}/`, { token: owner })).status).toBe(204);
    expect((await server.send("GET", "/api/org/acme/", { token })).status).toBe(404);
  });
});

describe("tokens that somebody made who is gone", () => {
  const make = async (slug: string, path: string, body: object, token: string): Promise<[number, string]> => {
    const made = await server.send("POST", `/api/org/${slug}/${path}/`, { token, body });
    const { id, token: secret } = v.parse(v.object({ id: v.number(), token: v.string() }), made.json);
    return [id, secret];
  };
  const opens = async (secret: string) =>
    (await server.send("GET", "/api/org/acme/nodes/", { token: secret })).status === 200;
  /** Ada is an admin of two organizations, and has made tokens of every kind. */
  const makeAll = async () => {
    const ada = await server.person("ada@example.org");
    const other = await server.organization("other", "10.78.0.0/16");
    for (const org of [acme, other]) await server.join(org, "ada@example.org", "admin");
    await make("acme", "registration_tokens", { expires_in: "1s" }, ada);
    const [registration] = await make("acme", "registration_tokens", { name: "rack", uses: 2 }, ada);
    const [service, secret] = await make("acme", "service_tokens", { name: "ci", role: "admin" }, ada);
    const [elsewhere] = await make("other", "registration_tokens", {}, ada);
    const [revoked] = await make("acme", "service_tokens", { name: "old", role: "member" }, ada);
    await server.send("DELETE", `/api/org/acme/service_tokens/${revoked}/`, { token: ada });
    await make("acme", "service_tokens", { name: "of another", role: "admin" }, owner);
    server.clock.ms += 2000;
    const inAcme = [
      { org_slug: "acme", kind: "registration_token", id: registration, name: "rack" },
      { org_slug: "acme", kind: "service_token", id: service, name: "ci" },
    ] as const;
    const inOther = { org_slug: "other", kind: "registration_token", id: elsewhere, name: null } as const;
    return { registration, service, secret, inAcme, inOther };
  };
  const remove = (query = "") => server.send("DELETE", `/api/org/acme/members/2/${query}`, { token: owner });
  const eventsOf = async (orgId: number | null) =>
    (
      await server.db.all(
        `SELECT type, subject, after FROM events WHERE coalesce(org_id, 0) = $1
         AND type IN ('token.revoked', 'member.deleted', 'user.disabled') ORDER BY id`,
        [orgId ?? 0],
      )
    ).map((row) => [row["type"], row["subject"], JSON.parse(String(row["after"]))]);

  test("go on, and the answer and the audit log name those in that organization", async () => {
    const { registration, service, secret, inAcme } = await makeAll();
    const answer = await remove();
    expect([answer.status, answer.headers.get("x-tokens-left")]).toEqual([
      204,
      `registration_tokens/${registration}/, service_tokens/${service}/`,
    ]);
    expect(await opens(secret)).toBe(true);
    const [, ...events] = await eventsOf(acme.id);
    expect(events).toEqual([
      ["member.deleted", "member/ada@example.org", { tokens_left: inAcme, tokens_revoked: [] }],
    ]);
    expect(JSON.stringify(events)).not.toContain(secret);
  });

  test("end with the membership if they shall, and in that organization alone", async () => {
    const { service, registration, secret, inAcme, inOther } = await makeAll();
    const answer = await remove("?revoke_tokens=true");
    expect([answer.status, answer.headers.get("x-tokens-left")]).toEqual([204, null]);
    expect(await opens(secret)).toBe(false);
    const [, ...events] = await eventsOf(acme.id);
    expect(events).toEqual([
      ["token.revoked", `registration_token/${registration}`, null],
      ["token.revoked", `service_token/${service}`, null],
      ["member.deleted", "member/ada@example.org", { tokens_left: [], tokens_revoked: inAcme }],
    ]);
    // Disabled, the account leaves what it made elsewhere.
    const { services } = server.app;
    expect(await setActive(services, "ada@example.org", false, operator)).toEqual({
      tokens_left: [inOther],
      tokens_revoked: [],
    });
  });

  test("end with the account if they shall, in every organization", async () => {
    const { secret, inAcme, inOther } = await makeAll();
    const { services } = server.app;
    const told = { tokens_left: [], tokens_revoked: [...inAcme, inOther] };
    const ended = await setActive(services, "ada@example.org", false, operator, { revokeTokens: true });
    expect(ended).toEqual(told);
    expect(await opens(secret)).toBe(false);
    expect(await eventsOf(null)).toEqual([["user.disabled", "user/ada@example.org", told]]);
    expect(await remove()).toMatchObject({ status: 204 });
  });

  test("stay as they are where the removal is refused", async () => {
    const [, secret] = await make("acme", "service_tokens", { name: "ci", role: "admin" }, owner);
    const refused = await server.send("DELETE", "/api/org/acme/members/1/?revoke_tokens=true", {
      token: owner,
    });
    expect([refused.status, await opens(secret)]).toEqual([409, true]);
  });
});

describe("the first account", () => {
  const offer = async (fresh: TestServer) => {
    const link = await offerFirstAccount(fresh.app.services);
    return /^https:\/\/control\.example\/setup\/#([\w-]{43})$/.exec(link ?? "")?.[1] ?? "";
  };
  const take = (fresh: TestServer, secret: string, email = "first@example.org") =>
    fresh.send("POST", "/api/setup/", { body: { secret, email, password } });

  test("is made by a link that works once, and only while there is none", async () => {
    await using fresh = await makeTestServer();
    const [secret, ofAnotherReplica] = [await offer(fresh), await offer(fresh)];
    expect((await take(fresh, "A".repeat(43))).status).toBe(404);
    expect((await take(fresh, secret)).json).toMatchObject({ email: "first@example.org", is_staff: true });
    expect((await take(fresh, secret, "second@example.org")).status).toBe(404);
    expect((await take(fresh, ofAnotherReplica, "second@example.org")).status).toBe(404);
    const body = { email: "first@example.org", password };
    const { access } = pair(await fresh.send("POST", "/api/token/", { body }));
    expect((await fresh.send("GET", "/api/docs/", { token: access })).status).toBe(200);
    expect(await offerFirstAccount(fresh.app.services)).toBeUndefined();
    expect(JSON.stringify(await fresh.db.all("SELECT * FROM meta"))).not.toContain("first_account");
  });

  test("its link dies after 30 minutes, and with an account that was made otherwise", async () => {
    await using fresh = await makeTestServer();
    const [late, overtaken] = [await offer(fresh), await offer(fresh)];
    fresh.clock.ms += 30 * 60_000 + 1;
    expect((await take(fresh, late)).status).toBe(404);
    fresh.clock.ms -= 30 * 60_000 + 1;
    await fresh.person("operator@example.org");
    expect((await take(fresh, overtaken)).status).toBe(404);
  });

  test("taken by many at the same instant: one has it", async () => {
    await using fresh = await makeTestServer();
    const secret = await offer(fresh);
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, at) => take(fresh, secret, `p${at}@example.org`)),
    );
    expect(answers.map((each) => each.status).filter((each) => each === 201)).toHaveLength(1);
    expect(await fresh.db.all("SELECT id FROM users")).toHaveLength(1);
  });
});
