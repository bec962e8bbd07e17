// Sign-in of the command line by a browser: with a code on any machine (RFC 8628), and on the same machine (RFC 8252).

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import * as v from "valibot";
import { operator } from "../../../src/server/audit/record.ts";
import { setActive } from "../../../src/server/offboarding/user-status.ts";
import { setPassword } from "../../../src/server/users/sign-in/set-password.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { makeUserCode } from "../../../src/server/users/sessions/device-sign-in.ts";
import { DeviceSignIn } from "../../../src/api/command-line.ts";
import { deleteEnded } from "../../../src/server/retention/ended-records.ts";
import { signInBrowser, type Browser } from "../../support/browser-session.ts";
import { addApp } from "../../support/factors.ts";
import { makeAcme, pair } from "../../support/people.ts";
import { makeTestServer, type Answer, type TestServer } from "../../support/server.ts";

const minute = 60_000;
let server: TestServer;
let acme: Organization;
let owner: string;
let browser: Browser;

beforeEach(async () => {
  server = await makeTestServer();
  ({ acme, owner } = await makeAcme(server));
  browser = await signInBrowser(server);
});
afterEach(() => server[Symbol.asyncDispose]());

const codeOf = ({ status, json }: Answer) => [status, (json as { code?: string } | undefined)?.code];
const post = (path: string, body: object, address?: string) =>
  server.send("POST", path, { body, ...(address === undefined ? {} : { address }) });
const begin = async (machine = "build-3", address = "203.0.113.9") =>
  v.parse(DeviceSignIn, (await post("/api/device/", { machine }, address)).json);
const poll = (device_code: string) => post("/api/device/token/", { device_code });
const find = (user_code: string, by = browser) =>
  by.send("POST", "/api/user/device_requests/find/", { body: { user_code } });
const decide = (user_code: string, approve = true, by = browser) =>
  by.send("POST", "/api/user/device_requests/decide/", { body: { user_code, approve } });
const whoAmI = async (token: string) => (await server.send("GET", "/api/user/", { token })).json;

describe("a code", () => {
  test("shows the machine, and its approval gives the session of the user, once", async () => {
    const { device_code, user_code, verification_uri, ...times } = await begin();
    expect([user_code, verification_uri, times]).toEqual([
      expect.stringMatching(/^[BCDFGHJKLMNPQRSTVWXZ]{5}-[BCDFGHJKLMNPQRSTVWXZ]{5}$/),
      "https://control.example/console/-/command-line/",
      { expires_in: 300, interval: 5 },
    ]);
    expect(codeOf(await poll(device_code))).toEqual([400, "sign_in_waiting"]);
    const found = await find(` ${user_code.toLowerCase().replace("-", " ")}`);
    expect(found.json).toMatchObject({ machine: "build-3", address: "203.0.113.9", is_known_network: false });
    expect((await decide(user_code)).status).toBe(204);
    const both = await Promise.all([poll(device_code), poll(device_code)]);
    expect(both.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 403]);
    const given = pair(both[0].status === 200 ? both[0] : both[1]);
    expect(await whoAmI(given.access)).toMatchObject({ email: "owner@example.org" });
    expect(codeOf(await poll(device_code))).toEqual([403, "sign_in_expired"]);
    const event = await server.db.get(
      "SELECT subject, after FROM events WHERE type = 'user.device_approved'",
    );
    expect(event).toMatchObject({
      subject: "user/owner@example.org",
      after: expect.stringContaining("build-3"),
    });
    const stored = JSON.stringify(await server.db.all("SELECT * FROM device_requests"));
    expect(stored).not.toContain(device_code);
  });

  test("that is refused gives nothing, and cannot be decided again", async () => {
    const { device_code, user_code } = await begin();
    expect((await decide(user_code, false)).status).toBe(204);
    expect(codeOf(await decide(user_code))).toEqual([404, "not_found"]);
    expect(codeOf(await poll(device_code))).toEqual([403, "sign_in_refused"]);
  });

  test("ends after five minutes, on both sides", async () => {
    const { device_code, user_code } = await begin();
    server.clock.ms += 5 * minute;
    expect(codeOf(await decide(user_code))).toEqual([404, "not_found"]);
    expect(codeOf(await poll(device_code))).toEqual([403, "sign_in_expired"]);
    await deleteEnded(server.app.services, minute, () => false);
    expect(await server.db.all("SELECT 1 FROM device_requests")).toEqual([]);
  });

  test("is asked for at most every five seconds", async () => {
    const { device_code } = await begin();
    await poll(device_code);
    const early = await poll(device_code);
    expect([...codeOf(early), early.headers.get("retry-after")]).toEqual([429, "throttled", "5"]);
    server.clock.ms += 5000;
    expect(codeOf(await poll(device_code))).toEqual([400, "sign_in_waiting"]);
  });

  test("that is guessed five times wrong locks the user's guesses, also for the right one", async () => {
    const { user_code } = await begin();
    for (let times = 0; times < 5; times++)
      expect(codeOf(await find("BBBBBBBBBB"))).toEqual([404, "not_found"]);
    expect(codeOf(await find(user_code))).toEqual([429, "throttled"]);
    expect(codeOf(await decide(user_code))).toEqual([429, "throttled"]);
  });

  test.each<[string, () => Promise<unknown>]>([
    ["was disabled", () => setActive(server.app.services, "owner@example.org", false, operator)],
    ["got a new password", () => setPassword(server.app.services, 1, "another password", operator)],
    ["signed out in the browser", () => browser.send("DELETE", "/api/session/")],
  ])("is worth nothing when the user %s after the approval", async (_, change) => {
    const { device_code, user_code } = await begin();
    await decide(user_code);
    server.clock.ms += 1000;
    await change();
    expect(codeOf(await poll(device_code))).toEqual([403, "sign_in_expired"]);
  });

  test("has at least 40 bits, of which no letter is likelier than another", () => {
    const bytes = Array.from({ length: 256 * 10 }, (_, at) => at % 256);
    const letters = new Map<string, number>();
    for (let codes = 0; codes < 240; codes++) {
      const code = makeUserCode({ random: () => Uint8Array.of(bytes.shift() ?? 0) });
      expect(code).toHaveLength(10);
      for (const letter of code) letters.set(letter, (letters.get(letter) ?? 0) + 1);
    }
    expect(new Set(letters.values())).toEqual(new Set([120]));
    expect(10 * Math.log2(letters.size)).toBeGreaterThanOrEqual(40);
  });

  test("gives the rights of who approved it, as they are when it is used", async () => {
    const change = async (token: string) =>
      (await server.send("PATCH", "/api/org/acme/", { token, body: { name: "New" } })).status;
    await server.person("ben@example.org");
    await server.join(acme, "ben@example.org", "member");
    const ben = await signInBrowser(server, "ben@example.org");
    // The owner's machine shows the code, and another member types it.
    const [first, second] = [await begin("machine of the owner"), await begin("machine of the owner")];
    expect((await decide(first.user_code, true, ben)).status).toBe(204);
    const { access } = pair(await poll(first.device_code));
    expect([await change(access), await whoAmI(access)]).toEqual([
      403,
      expect.objectContaining({ email: "ben@example.org" }),
    ]);
    await server.db.write((tx) => tx.run("UPDATE memberships SET role = 'admin' WHERE user_id = 2"));
    expect((await decide(second.user_code, true, ben)).status).toBe(204);
    const asAdmin = pair(await poll(second.device_code)).access;
    expect(await change(asAdmin)).toBe(200);
    await server.db.write((tx) => tx.run("UPDATE memberships SET role = 'member' WHERE user_id = 2"));
    expect(await change(asAdmin)).toBe(403);
  });

  test("needs a fresh second factor, and gives a session without one", async () => {
    const app = await addApp(server, owner);
    const { device_code, user_code } = await begin();
    expect(codeOf(await decide(user_code))).toEqual([403, "step_up_required"]);
    await browser.send("POST", "/api/user/step_up/", { body: { otp: app.code(1) } });
    expect((await decide(user_code)).status).toBe(204);
    const { access } = pair(await poll(device_code));
    const fresh = await server.send("DELETE", "/api/user/totp/", { token: access });
    expect(codeOf(fresh)).toEqual([403, "step_up_required"]);
  });

  test("is approved in browsers only: not by a token, not without a session, not by a foreign page", async () => {
    const { user_code } = await begin();
    const body = { user_code, approve: true };
    const path = "/api/user/device_requests/decide/";
    expect(codeOf(await server.send("POST", path, { token: owner, body }))).toEqual([
      403,
      "permission_denied",
    ]);
    expect((await server.send("POST", path, { body })).status).toBe(401);
    const foreign = await browser.send("POST", path, { body, headers: { Origin: "https://evil.example" } });
    expect(codeOf(foreign)).toEqual([403, "cross_site"]);
    expect((await browser.send("GET", path)).status).toBe(405);
  });

  test("is approved by no member of an organization that forbids it, but refused", async () => {
    const forbidden = await server.send("PATCH", "/api/org/acme/", {
      token: owner,
      body: { device_codes: false },
    });
    expect(forbidden.json).toMatchObject({ device_codes: false });
    const { device_code, user_code } = await begin();
    const answer = await decide(user_code);
    expect([...codeOf(answer), answer.text]).toEqual([
      403,
      "permission_denied",
      expect.stringContaining("acme"),
    ]);
    expect(codeOf(await poll(device_code))).toEqual([400, "sign_in_waiting"]);
    expect((await decide(user_code, false)).status).toBe(204);
  });

  test("that was approved before an organization forbade it gives no session any more", async () => {
    const { device_code, user_code } = await begin();
    expect((await decide(user_code)).status).toBe(204);
    const forbid = (device_codes: boolean) =>
      server.send("PATCH", "/api/org/acme/", { token: owner, body: { device_codes } });
    await forbid(false);
    const answer = await poll(device_code);
    expect([...codeOf(answer), answer.text]).toEqual([
      403,
      "permission_denied",
      expect.stringContaining("acme"),
    ]);
    // Nor later, when it is permitted again.
    await forbid(true);
    expect(codeOf(await poll(device_code))).toEqual([403, "sign_in_expired"]);
  });

  test("shows the machine's name without characters that change how it is read", async () => {
    const { user_code } = await begin("build-3\u202egro.elpmaxe\u2066\u001b[2J\nfrom the office\u2069 ");
    expect((await find(user_code)).json).toMatchObject({
      machine: "build-3 gro.elpmaxe [2J from the office",
    });
    expect((await post("/api/device/", { machine: "\u202e\u2066" })).status).toBe(400);
  });

  test("is one of at most 20 a minute from one network", async () => {
    for (let times = 0; times < 20; times++) await begin();
    expect(codeOf(await post("/api/device/", { machine: "x" }, "203.0.113.9"))).toEqual([429, "throttled"]);
    await begin("x", "198.51.100.1");
  });

  test("is one of at most 50 that wait from one IPv6 /48, and other sites can begin", async () => {
    const answers = [];
    for (let at = 1; at <= 60; at++)
      answers.push(await post("/api/device/", { machine: "x" }, `2001:db8:7:${at.toString(16)}::1`));
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(50);
    expect(codeOf(answers.at(-1) ?? expect.unreachable())).toEqual([429, "throttled"]);
    await begin("x", "2001:db8:8::1");
    server.clock.ms += 5 * minute;
    await begin("x", "2001:db8:7::1");
  });
});

describe("a browser on the same machine", () => {
  const verifier = "v".repeat(43);
  const challenge = createHash("sha256").update(verifier).digest("base64url");
  const codeFor = async (by = browser) => {
    const made = await by.send("POST", "/api/user/login_codes/", { body: { code_challenge: challenge } });
    return (made.json as { code: string }).code;
  };
  const exchange = (code: string, code_verifier = verifier) =>
    post("/api/token/code/", { code, code_verifier });

  test("brings a code that gives the session of the user, once", async () => {
    const code = await codeFor();
    expect(code).not.toContain("owner");
    const both = await Promise.all([exchange(code), exchange(code)]);
    expect(both.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 403]);
    const first = both.find(({ status }) => status === 200);
    expect(first === undefined ? undefined : await whoAmI(pair(first).access)).toMatchObject({ id: 1 });
  });

  test("brings a code that counts once, however its text is written", async () => {
    const code = await codeFor();
    expect((await exchange(code)).status).toBe(200);
    // A character or bits too many change the text, and not what it says.
    for (const other of [`${code}A`, `${code}_`])
      expect(codeOf(await exchange(other))).toEqual([403, "sign_in_expired"]);
  });

  test("whose code is late, made up, or another process's gives nothing", async () => {
    const code = await codeFor();
    expect(codeOf(await exchange(code, "w".repeat(43)))).toEqual([403, "sign_in_expired"]);
    expect(codeOf(await exchange(`${code.slice(0, -2)}AA`))).toEqual([403, "sign_in_expired"]);
    server.clock.ms += minute;
    expect(codeOf(await exchange(code))).toEqual([403, "sign_in_expired"]);
  });

  test("of a user who was disabled since gives nothing", async () => {
    const code = await codeFor();
    server.clock.ms += 1000;
    await setActive(server.app.services, "owner@example.org", false, operator);
    expect(codeOf(await exchange(code))).toEqual([403, "sign_in_expired"]);
  });

  test("whose session ended since gives nothing", async () => {
    const code = await codeFor();
    await server.db.write((tx) => tx.run("DELETE FROM browser_sessions"));
    expect(codeOf(await exchange(code))).toEqual([403, "sign_in_expired"]);
  });

  test("needs a fresh second factor, and a session of a browser", async () => {
    await addApp(server, owner);
    const made = await browser.send("POST", "/api/user/login_codes/", {
      body: { code_challenge: challenge },
    });
    expect(codeOf(made)).toEqual([403, "step_up_required"]);
    const byToken = await server.send("POST", "/api/user/login_codes/", {
      token: await server.person("plain@example.org"),
      body: { code_challenge: challenge },
    });
    expect(codeOf(byToken)).toEqual([403, "permission_denied"]);
  });
});
