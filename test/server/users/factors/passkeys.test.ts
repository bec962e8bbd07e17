// Passkeys by an authenticator in software: adding, signing in, fresh proofs, and everything that is refused.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { lostPasskeys } from "../../../../src/server/users/factors/passkeys.ts";
import chromium from "../../../fixtures/chromium-156-registration.json" with { type: "json" };
import {
  makeAuthenticator,
  type AlgorithmNumber,
  type Authenticator,
  type Fault,
} from "../../../support/authenticator.ts";
import { browserWith, cookieIn, ownPage, signInBrowser } from "../../../support/browser-session.ts";
import { addApp } from "../../../support/factors.ts";
import { makeAcme } from "../../../support/people.ts";
import { makeTestServer, password, type Answer, type TestServer } from "../../../support/server.ts";

const email = "owner@example.org";
const minute = 60_000;
let server: TestServer;
let owner: string;
let device: Authenticator;

beforeEach(async () => {
  server = await makeTestServer({ accessLifetimeS: 86_400 });
  ({ owner } = await makeAcme(server));
  device = makeAuthenticator();
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

const codeOf = ({ status, json }: Answer) => [status, (json as { code?: string } | undefined)?.code];
const refused = [401, "invalid_credentials"];
const post = (path: string, body: object, token = owner) => server.send("POST", path, { token, body });
const newOptions = async (token = owner) =>
  (await post("/api/user/passkeys/options/", { current_password: password }, token)).json;
const add = async (fault: Fault = {}, by = device, token = owner) =>
  post("/api/user/passkeys/", { name: "laptop", response: by.create(await newOptions(token), fault) }, token);
const page = (path: string, body: object, headers: Record<string, string> = ownPage) =>
  server.send("POST", path, { body, headers });
const signInOptions = async () => (await page("/api/session/passkey/options/", {})).json;
const send = (response: object) => page("/api/session/passkey/", { response });
const signIn = async (fault: Fault = {}, by = device) => send(by.get(await signInOptions(), fault));

describe("adding a passkey", () => {
  test("asks for user verification and a key that the device keeps, and gives recovery codes", async () => {
    expect(await newOptions()).toMatchObject({
      rp: { id: "control.example" },
      attestation: "none",
      authenticatorSelection: { residentKey: "required", userVerification: "required" },
    });
    const added = await add();
    expect([added.status, added.json]).toEqual([
      201,
      {
        passkey: expect.objectContaining({ id: 1, name: "laptop", is_usable: true, last_used_at: null }),
        recovery_codes: expect.any(Array),
      },
    ]);
    const factors = await server.send("GET", "/api/user/factors/", { token: owner });
    expect(factors.json).toEqual({ totp: false, passkeys: 1, recovery_codes_left: 10, is_required: false });
    expect(await newOptions()).toMatchObject({
      excludeCredentials: [{ transports: ["internal", "hybrid"] }],
    });
  });

  test("every algorithm that browsers are offered is accepted, and signs in", async () => {
    const offered = (await newOptions()) as { pubKeyCredParams: { alg: AlgorithmNumber }[] };
    const numbers = offered.pubKeyCredParams.map(({ alg }) => alg);
    // Chromium 156 takes the first, ML-DSA-44.
    expect(numbers).toEqual([-48, -8, -7, -257]);
    for (const algorithm of numbers) {
      const by = makeAuthenticator({ algorithm });
      expect([algorithm, (await add({}, by)).status]).toEqual([algorithm, 201]);
      expect([algorithm, (await signIn({}, by)).status]).toEqual([algorithm, 201]);
    }
  });

  test("a registration of Chromium 156 is accepted: its key is ML-DSA-44", async () => {
    const local = await makeTestServer({ publicUrl: "http://localhost:8420" });
    const { owner: token } = await makeAcme(local);
    const path = "/api/user/passkeys/";
    const options = await local.send("POST", `${path}options/`, {
      token,
      body: { current_password: password },
    });
    // The challenge alone is today's: without attestation, nothing signs it.
    const today = makeAuthenticator({ origin: "http://localhost:8420" }).create(options.json);
    const { clientDataJSON } = today.response;
    const response = { ...chromium, response: { ...chromium.response, clientDataJSON } };
    const added = await local.send("POST", path, { token, body: { name: "laptop", response } });
    expect(added.status).toBe(201);
    await local[Symbol.asyncDispose]();
  });

  test("belongs to the sign-in that began it", async () => {
    const options = await newOptions();
    const other = await server.send("POST", "/api/token/", { body: { email, password } });
    const response = device.create(options);
    const send = (token: string) => post("/api/user/passkeys/", { name: "laptop", response }, token);
    expect(codeOf(await send((other.json as { access: string }).access))).toEqual(refused);
    expect((await send(owner)).status).toBe(201);
  });

  test("needs the password for the first second factor, later a fresh proof", async () => {
    expect(codeOf(await post("/api/user/passkeys/options/", {}))).toEqual([400, "validation_failed"]);
    expect(codeOf(await post("/api/user/passkeys/options/", { current_password: "wrong" }))).toEqual(refused);
    await add();
    server.clock.ms += 11 * minute;
    expect(codeOf(await post("/api/user/passkeys/options/", {}))).toEqual([403, "step_up_required"]);
  });

  test.each<[string, Fault]>([
    ["of another site", { origin: "https://evil.example" }],
    ["of a sibling host", { origin: "https://www.control.example" }],
    ["for another relying party", { rpId: "evil.example" }],
    ["in a frame of another site", { isFramed: true }],
    ["without user verification", { isVerified: false }],
    ["with another challenge", { challenge: Buffer.from("x").toString("base64url") }],
    ["with an algorithm of another kind of keys", { key: [[3, -8]] }],
    ["with another curve", { key: [[-1, 2]] }],
    ["with a kind of keys that its algorithm has not", { key: [[1, 1]] }],
    [
      "with a curve, and a kind of keys that has none",
      {
        key: [
          [1, 7],
          [3, -48],
        ],
      },
    ],
    ["with a point beside the curve", { key: [[-2, new Uint8Array(32).fill(1)]] }],
  ])("an answer %s is refused", async (_, fault) => {
    expect(codeOf(await add(fault))).toEqual(refused);
    expect(await server.db.all("SELECT 1 FROM passkeys")).toEqual([]);
  });

  test("a challenge works once, for 5 minutes, and for its user and purpose only", async () => {
    const options = await newOptions();
    const answer = (by: Authenticator, token = owner) =>
      post("/api/user/passkeys/", { name: "x", response: by.create(options) }, token);
    const eve = await server.person("eve@example.org");
    expect(codeOf(await answer(makeAuthenticator(), eve))).toEqual(refused);
    expect((await answer(device)).status).toBe(201);
    expect(codeOf(await answer(makeAuthenticator()))).toEqual(refused);
    const late = await newOptions();
    server.clock.ms += 5 * minute;
    expect(
      codeOf(await post("/api/user/passkeys/", { name: "x", response: makeAuthenticator().create(late) })),
    ).toEqual(refused);
    const other = makeAuthenticator();
    const mixed = other.create({
      ...((await newOptions()) as object),
      challenge: ((await signInOptions()) as { challenge: string }).challenge,
    });
    expect(codeOf(await post("/api/user/passkeys/", { name: "x", response: mixed }))).toEqual(refused);
  });

  test("the same passkey cannot belong to two users", async () => {
    await add();
    const eve = await server.person("eve@example.org");
    expect(codeOf(await add({}, device, eve))).toEqual([409, "conflict"]);
  });

  test("at a bare IP address there are none, and the answer says why", async () => {
    const bare = await makeTestServer({ publicUrl: "https://192.0.2.7:8420" });
    const headers = { ...ownPage, Origin: "https://192.0.2.7:8420" };
    const answer = await bare.send("POST", "/api/session/passkey/options/", { body: {}, headers });
    expect([answer.status, answer.json]).toEqual([
      409,
      expect.objectContaining({
        detail: expect.stringContaining("192.0.2.7"),
        hint: expect.stringContaining("--public-url"),
      }),
    ]);
    await bare[Symbol.asyncDispose]();
  });
});

describe("signing in with a passkey", () => {
  test("gives a session, with a fresh second factor", async () => {
    await add();
    const answer = await signIn();
    expect([answer.status, answer.json]).toEqual([201, expect.objectContaining({ id: 1, email })]);
    const browser = browserWith(server, cookieIn(answer, "__Host-session") ?? "");
    expect((await browser.send("PATCH", "/api/org/acme/", { body: { alive_interval: 2 } })).status).toBe(200);
  });

  test("a passkey counts as second factor: the password alone no longer signs in", async () => {
    await add();
    const asked = await post("/api/token/", { email, password });
    expect(asked.json).toMatchObject({
      code: "second_factor_required",
      methods: ["passkey", "recovery_code"],
    });
  });

  test.each<[string, Fault]>([
    ["of another site", { origin: "https://evil.example" }],
    ["of another relying party", { rpId: "evil.example" }],
    ["in a frame of another site", { isFramed: true }],
    ["without user verification", { isVerified: false }],
    ["with another challenge", { challenge: Buffer.from("x").toString("base64url") }],
  ])("an answer %s is refused", async (_, fault) => {
    await add();
    const answer = await signIn(fault);
    expect([codeOf(answer), answer.headers.getSetCookie()]).toEqual([refused, []]);
  });

  test("an unknown passkey, a changed signature and another user's handle are refused", async () => {
    await add();
    expect(codeOf(await signIn({}, makeAuthenticator()))).toEqual(refused);
    const good = device.get(await signInOptions());
    const changed = {
      ...good,
      response: { ...good.response, signature: good.response.signature.replace(/^...../, "AAAAA") },
    };
    expect(codeOf(await send(changed))).toEqual(refused);
    const foreign = {
      ...good,
      response: { ...good.response, userHandle: Buffer.from("user 2").toString("base64url") },
    };
    expect(codeOf(await send(foreign))).toEqual(refused);
    expect((await send(good)).status).toBe(201);
  });

  test("an answer works once, also at the same instant", async () => {
    await add();
    const response = device.get(await signInOptions());
    const answers = await Promise.all([send(response), send(response), send(response)]);
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 401, 401]);
  });

  test("once a device counted, the counter must rise; zero is taken from synced passkeys, which never counted", async () => {
    await add();
    expect((await signIn()).status).toBe(201);
    expect((await signIn()).status).toBe(201);
    device.counter = 7;
    expect((await signIn()).status).toBe(201);
    expect(codeOf(await signIn({ counter: 8 }))).toEqual(refused);
    expect(codeOf(await signIn({ counter: 3 }))).toEqual(refused);
    expect((await signIn({ counter: 12 })).status).toBe(201);
    expect(codeOf(await signIn({ counter: 0 }))).toEqual(refused);
    expect((await signIn({ counter: 13 })).status).toBe(201);
  });

  test("only pages of this control plane may do it", async () => {
    await add();
    for (const path of ["/api/session/passkey/options/", "/api/session/passkey/"]) {
      const foreign = { ...ownPage, "Sec-Fetch-Site": "same-site" };
      const response = path.endsWith("options/") ? {} : { response: device.get(await signInOptions()) };
      expect(codeOf(await page(path, response, foreign))).toEqual([403, "cross_site"]);
    }
  });

  test("a disabled user gets none", async () => {
    await add();
    await server.db.write((tx) => tx.run("UPDATE users SET is_active = 0"));
    expect((await signIn()).status).toBe(401);
  });

  test("a user of an organization's provider gets none: there it is a second factor only", async () => {
    await add();
    expect((await signIn()).status).toBe(201);
    await server.db.write((tx) => tx.run("UPDATE users SET bound_org_id = 1 WHERE email = $1", [email]));
    expect((await signIn()).status).toBe(401);
  });

  test("a user without a password signs in with it, and with no password", async () => {
    await add();
    await server.db.write((tx) => tx.run("UPDATE users SET password_hash = ''"));
    for (const guess of [" ", password])
      expect(codeOf(await post("/api/token/", { email, password: guess }))).toEqual(refused);
    const browser = browserWith(server, cookieIn(await signIn(), "__Host-session") ?? "");
    expect(codeOf(await browser.send("DELETE", "/api/user/passkeys/1/"))).toEqual([409, "conflict"]);
  });
});

describe("a fresh proof by a passkey", () => {
  const path = "/api/user/step_up/passkey/";
  const change = async (token: string) =>
    codeOf(await server.send("PATCH", "/api/org/acme/", { token, body: { alive_interval: 2 } }));

  test("counts for the sign-in that asked for it, and no other", async () => {
    await add();
    const browser = browserWith(server, cookieIn(await signIn(), "__Host-session") ?? "");
    server.clock.ms += 11 * minute;
    expect(await change(owner)).toEqual([403, "step_up_required"]);
    const options = (await browser.send("POST", `${path}options/`, { body: {} })).json;
    const response = device.get(options);
    expect(codeOf(await post(path, { response }))).toEqual(refused);
    expect((await browser.send("POST", path, { body: { response } })).status).toBe(204);
    expect(codeOf(await browser.send("POST", path, { body: { response } }))).toEqual(refused);
    expect((await browser.send("PATCH", "/api/org/acme/", { body: { alive_interval: 2 } })).status).toBe(200);
    expect(await change(owner)).toEqual([403, "step_up_required"]);
  });

  test("is not given by a passkey of another user, nor by an answer that was made for a sign-in", async () => {
    await add();
    const eve = await server.person("eve@example.org");
    const hers = makeAuthenticator();
    await add({}, hers, eve);
    const options = (await post(`${path}options/`, {})).json;
    expect(codeOf(await post(path, { response: hers.get(options) }))).toEqual(refused);
    expect(codeOf(await post(path, { response: device.get(await signInOptions()) }))).toEqual(refused);
  });
});

describe("removing a passkey", () => {
  test("needs a fresh proof, and only the own one can be removed", async () => {
    await add();
    const eve = await signInBrowser(server, (await server.person("eve@example.org"), "eve@example.org"));
    expect((await eve.send("DELETE", "/api/user/passkeys/1/")).status).toBe(404);
    const remove = () => server.send("DELETE", "/api/user/passkeys/1/", { token: owner });
    server.clock.ms += 11 * minute;
    expect(codeOf(await remove())).toEqual([403, "step_up_required"]);
  });

  test("the last factor stays while one is required; with an app beside it, it goes", async () => {
    await add();
    await server.db.write((tx) => tx.run("UPDATE organizations SET second_factor = 1"));
    const remove = () => server.send("DELETE", "/api/user/passkeys/1/", { token: owner });
    expect(codeOf(await remove())).toEqual([409, "conflict"]);
    await addApp(server, owner);
    expect((await remove()).status).toBe(204);
    expect(codeOf(await signIn())).toEqual(refused);
  });
});

test("after a change of the public name, the users who lose their passkeys are named", async () => {
  await add();
  expect(await lostPasskeys(server.db, "https://control.example")).toEqual([]);
  expect(await lostPasskeys(server.db, "https://new.example")).toEqual([`${email} (control.example)`]);
});
