// Limits of wrong passwords and tokens: what an attacker may try, and that users are still admitted meanwhile.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { operator } from "../../../src/server/audit/record.ts";
import { limits, makeThrottle } from "../../../src/server/http/throttle.ts";
import { offerFirstUser } from "../../../src/server/users/first-user.ts";
import { NewMember } from "../../../src/api/members.ts";
import { setPassword } from "../../../src/server/users/sign-in/set-password.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { makeKeys, registrationToken, sendRegistration } from "../../support/nodes.ts";
import { makeAcme, pair, signInTo } from "../../support/people.ts";
import { makeTestServer, password, type Answer, type TestServer } from "../../support/server.ts";

let server: TestServer;
/** Sets the clock, and the server believes it. */
const step = (ms: number) => Object.assign(server.clock, { steppedMs: ms, confirmedMs: ms });
let acme: Organization;
let owner = "";

beforeEach(async () => {
  server = await makeTestServer();
  ({ acme, owner } = await makeAcme(server));
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

const email = "owner@example.org";
const signIn = (address: string, secret = password, who = email) => signInTo(server, who, secret, address);
const wrong = async (times: number, address: string, who = email) => {
  for (let at = 0; at < times; at++) expect((await signIn(address, "wrong!!!", who)).status).toBe(401);
};
/** Wrong passwords of ten users, as many as a network may try in a minute. */
const spray = async (...addresses: string[]) => {
  for (let at = 0; at < 10; at++) await server.person(`u${at}@example.org`);
  for (let at = 0; at < 10; at++) {
    await wrong(1, addresses[at % addresses.length] ?? "", `u${at}@example.org`);
  }
};
const withDevice = (cookie: string, address: string, secret = password, who = email) =>
  server.send("POST", "/api/token/", {
    body: { email: who, password: secret },
    headers: { Cookie: `a=b; ${cookie}` },
    address,
  });
const deviceOf = ({ headers }: Answer) => {
  const cookies = headers.getSetCookie().filter((each) => each.startsWith("device_"));
  expect(cookies.length).toBe(1);
  expect(cookies[0]).toMatch(/; Path=\/api\/; HttpOnly; SameSite=Strict; Max-Age=7776000; Secure$/);
  return cookies[0]?.split(";")[0] ?? "";
};
/** As many failures of the user as an hour allows, without the time that hashing takes. */
const attack = (userId = 1) => {
  for (let at = 0; at < 100; at++) server.app.services.throttle.count("user", `user ${userId}`);
};

describe("wrong passwords", () => {
  test("ten a minute keep their network from the user, not other networks, nor other users", async () => {
    await server.person("other@example.org");
    await wrong(10, "198.51.100.1");
    const refused = await signIn("198.51.100.1");
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "60"]);
    expect((await signIn("198.51.100.1", password, "other@example.org")).status).toBe(200);
    expect((await signIn("198.51.100.2")).status).toBe(200);
    server.clock.ms += 60_001;
    expect((await signIn("198.51.100.1")).status).toBe(200);
  });

  test("of ten users keep their network from all users; other networks are admitted", async () => {
    await spray("192.0.2.1");
    expect((await signIn("192.0.2.1")).status).toBe(429);
    expect((await signIn("192.0.2.99")).status).toBe(200);
  });

  test("an IPv6 /64 counts as one network", async () => {
    await spray("2001:db8:0:7::1", "2001:db8:0:7::2");
    expect((await signIn("2001:DB8:0:7:ffff::1")).status).toBe(429);
    expect((await signIn("2001:db8:0:8::1")).status).toBe(200);
  });

  test("concurrent guesses get no more attempts than sequential ones", async () => {
    const answers = await Promise.all(
      Array.from({ length: 24 }, (_, at) => signIn("192.0.2.1", `wrong${at}!!!`)),
    );
    // Two passwords are hashed at a time: one guess more than the limit may be under way.
    expect(answers.filter((each) => each.status === 401).length).toBeLessThanOrEqual(11);
    expect(answers.filter((each) => each.status === 429).length).toBeGreaterThanOrEqual(13);
  });

  test("correct passwords are never counted", async () => {
    const answers = await Promise.all(Array.from({ length: 16 }, () => signIn("192.0.2.1")));
    expect(answers.map((each) => each.status)).toEqual(answers.map(() => 200));
  });

  test("429 comes before the method and the body are checked", async () => {
    await spray("192.0.2.1");
    for (const path of ["/api/token/", "/api/docs/sign_in/"]) {
      expect((await server.send("POST", path, { raw: "{" })).status).toBe(429);
      expect((await server.send("PUT", path)).status).toBe(429);
      expect((await server.send("POST", path, { raw: "{", address: "192.0.2.99" })).status).toBe(400);
    }
  });

  test("a flood of one kind does not displace the counts of another", () => {
    const throttle = makeThrottle(() => 0, limits);
    throttle.count("user", "1");
    for (let at = 0; at < 20_001; at++) throttle.count("stranger", `${at}@example.org`);
    expect(throttle.counted("user", "1")).toBe(1);
    expect(["0@example.org", "20000@example.org"].map((each) => throttle.counted("stranger", each))).toEqual([
      0, 1,
    ]);
  });
});

describe("an attack on one user from many networks", () => {
  test("of 10,000 passwords, about 100 an hour are tried; the right one among the others opens nothing", async () => {
    let next = 0;
    const statuses = new Map<number, number>();
    const attacker = async () => {
      for (let at = next++; at < 10_000; at = next++) {
        const address = `198.18.${at >> 8}.${at & 255}`;
        const { status } = await signIn(address, at === 5000 ? password : `wrong ${at}`);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
      }
    };
    await Promise.all(Array.from({ length: 8 }, attacker));
    expect([...statuses.keys()].toSorted((a, b) => a - b)).toEqual([401, 429]);
    expect(statuses.get(401)).toBeGreaterThanOrEqual(100);
    expect(statuses.get(401)).toBeLessThanOrEqual(101);
    const refused = await signIn("198.18.255.1");
    expect(refused.text).toContain("devices and networks that the user signed in from before");
    expect(refused.headers.get("retry-after")).toBe("3600");
    server.clock.ms += 3_600_001;
    expect((await signIn("198.18.255.1")).status).toBe(200);
  }, 120_000);

  test("the user still signs in from a network and with a device known before, from nowhere else", async () => {
    const device = deviceOf(await signIn("203.0.113.7"));
    await signIn("2001:db8:5:5::1");
    attack();
    expect((await signIn("198.51.100.1")).status).toBe(429);
    expect((await signIn("203.0.113.7")).status).toBe(200);
    expect((await signIn("203.0.113.8")).status).toBe(429);
    expect((await signIn("2001:db8:5:5:6::9")).status).toBe(200);
    expect((await withDevice(device, "198.51.100.1")).status).toBe(200);
    // Now known, and limited on its own.
    expect((await signIn("198.51.100.1")).status).toBe(200);
  });

  test("also through the docs pages and a change of the password", async () => {
    await server.person("staff@example.org", { isStaff: true });
    const body = { email: "staff@example.org", password };
    const docs = (address: string, headers = {}) =>
      server.send("POST", "/api/docs/sign_in/", { body, address, headers });
    const device = deviceOf(await docs("203.0.113.7"));
    attack(2);
    expect((await docs("198.51.100.1")).status).toBe(429);
    expect((await docs("203.0.113.7")).status).toBe(204);
    expect((await docs("198.51.100.1", { Cookie: device })).status).toBe(204);

    await signIn("203.0.113.7");
    attack(1);
    const change = { current_password: password, new_password: "another long one" };
    const changed = { token: owner, body: change, address: "203.0.113.7" };
    expect((await server.send("POST", "/api/user/password/", changed)).status).toBe(204);
    expect((await signIn("203.0.113.7", "another long one")).status).toBe(200);
  });

  test("the network where the first user was created is known", async () => {
    await using fresh = await makeTestServer();
    const secret = /#(.+)$/.exec((await offerFirstUser(fresh.app.services)) ?? "")?.[1];
    const setup = { body: { secret, email: "first@example.org", password }, address: "203.0.113.9" };
    expect((await fresh.send("POST", "/api/setup/", setup)).status).toBe(201);
    for (let at = 0; at < 100; at++) fresh.app.services.throttle.count("user", "user 1");
    const statuses = ["203.0.113.9", "203.0.113.8"].map(
      async (address) => (await signInTo(fresh, "first@example.org", password, address)).status,
    );
    expect(await Promise.all(statuses)).toEqual([200, 429]);
  });

  test("the network where an invitation was accepted is known", async () => {
    const answer = await server.send("POST", "/api/org/acme/members/", {
      token: owner,
      body: { email: "new@example.org" },
    });
    const secret = /#(.+)$/.exec(v.parse(NewMember, answer.json).link ?? "")?.[1];
    const join = { body: { secret, password }, address: "203.0.113.9" };
    expect((await server.send("POST", "/api/join/", join)).status).toBe(200);
    attack(2);
    expect((await signIn("203.0.113.9", password, "new@example.org")).status).toBe(200);
    expect((await signIn("203.0.113.8", password, "new@example.org")).status).toBe(429);
  });

  test("an address without a user gets the same answers", async () => {
    const stranger = "nobody@example.org";
    for (let at = 0; at < 100; at++) server.app.services.throttle.count("stranger", `stranger ${stranger}`);
    attack();
    const [unknown, known] = [await signIn("198.51.100.1", "x", stranger), await signIn("198.51.100.1", "x")];
    expect([unknown.status, unknown.json]).toEqual([429, known.json]);
  });

  test("a new user of that address starts without those failures", async () => {
    for (let at = 0; at < 100; at++)
      server.app.services.throttle.count("stranger", "stranger new@example.org");
    await server.person("new@example.org");
    expect((await signIn("198.51.100.1", password, "new@example.org")).status).toBe(200);
  });
});

describe("a known network", () => {
  const known = async () =>
    (await server.db.all("SELECT network FROM known_networks WHERE user_id = 1 ORDER BY seen_at")).map(
      (row) => row["network"],
    );

  test("allows 100 wrong passwords an hour", async () => {
    await signIn("203.0.113.7");
    for (let round = 0; round < 10; round++) {
      await wrong(10, "203.0.113.7");
      server.clock.ms += 60_000;
    }
    const refused = await signIn("203.0.113.7");
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "3000"]);
    server.clock.ms += 3_600_000;
    expect((await signIn("203.0.113.7")).status).toBe(200);
  }, 120_000);

  test("is shared by replicas and survives a restart", async () => {
    await signIn("203.0.113.7");
    const { db } = server;
    const { secretKey } = server.app.services;
    await using replica = await makeTestServer({
      secretKey,
      open: async () => ({ db: { ...db, close: async () => undefined }, dispose: () => undefined }),
    });
    for (let at = 0; at < 100; at++) replica.app.services.throttle.count("user", "user 1");
    expect((await signInTo(replica, email, password, "203.0.113.7")).status).toBe(200);
    expect((await signInTo(replica, email, password, "198.51.100.1")).status).toBe(429);
  });

  test("is forgotten 90 days after the last sign-in from there, and beyond the newest 32", async () => {
    await signIn("203.0.113.1");
    for (let at = 2; at <= 34; at++) {
      server.clock.ms += 1000;
      await signIn(`203.0.113.${at}`);
    }
    expect(await known()).toEqual(Array.from({ length: 32 }, (_, at) => `203.0.113.${at + 3}`));
    server.clock.ms += 90 * 86_400_000;
    attack();
    expect((await signIn("203.0.113.34")).status).toBe(429);
    server.clock.ms += 3_600_001;
    await signIn("198.51.100.1");
    expect(await known()).toEqual(["198.51.100.1"]);
  });

  test("is not one whose address was lost with the connection, nor that of a failed sign-in", async () => {
    await signIn("");
    await signIn("198.51.100.1", "wrong!!!");
    expect(await known()).toEqual([]);
  });
});

describe("a known device", () => {
  test("is admitted while its network is kept out, and is limited on its own", async () => {
    const device = deviceOf(await signIn("192.0.2.1"));
    await spray("192.0.2.1");
    expect((await signIn("192.0.2.1")).status).toBe(429);
    const again = deviceOf(await withDevice(device, "192.0.2.1"));
    for (const cookie of [device, again, device, again, device, again, device, again, device, again]) {
      expect((await withDevice(cookie, "192.0.2.77", "wrong!!!")).status).toBe(401);
    }
    // The renewed cookie is the same device.
    expect((await withDevice(device, "192.0.2.78")).status).toBe(429);
    expect((await withDevice(again, "192.0.2.78")).status).toBe(429);
    expect((await signIn("192.0.2.77")).status).toBe(200);
  });

  test("is not one with a cookie of another user, a damaged one, an old one, or another token", async () => {
    await server.person("other@example.org");
    const own = deviceOf(await signIn("192.0.2.1"));
    const value = own.slice(own.indexOf("=") + 1);
    const other = deviceOf(await signIn("192.0.2.2", password, "other@example.org"));
    const { refresh, access } = pair(await signIn("192.0.2.1"));
    attack();
    const cookies = [
      other,
      `device_1=${other.slice(other.indexOf("=") + 1)}`,
      `${own.slice(0, -4)}AAAA`,
      `device_1=${refresh}`,
      `device_1=${access}`,
      "device_1=x",
      `device_1=${"x".repeat(8000)}`,
    ];
    for (const cookie of cookies) expect((await withDevice(cookie, "198.51.100.1")).status).toBe(429);
    expect((await withDevice(own, "198.51.100.1")).status).toBe(200);
    server.clock.ms += 90 * 86_400_000 + 1;
    attack();
    expect((await withDevice(own, "198.51.100.2")).status).toBe(429);
    // The cookie opens nothing.
    expect((await server.send("GET", "/api/user/", { token: value })).status).toBe(401);
    expect((await server.send("GET", "/api/user/", { headers: { Cookie: own } })).status).toBe(401);
  });

  test("stays known after a new password", async () => {
    const device = deviceOf(await signIn("192.0.2.1"));
    await setPassword(server.app.services, 1, "another long one", operator);
    attack();
    expect((await withDevice(device, "198.51.100.1", "another long one")).status).toBe(200);
  });
});

test("guessed tokens and secrets of a network do not stop its valid ones, nor sign-ins", async () => {
  const address = "203.0.113.50";
  const token = await registrationToken(server, acme);
  const keys = await makeKeys();
  const register = (registration_token: string) =>
    sendRegistration(server, "acme", { name: "web", ...keys, registration_token }, { address });
  const invited = await server.send("POST", "/api/org/acme/members/", {
    token: owner,
    body: { email: "new@example.org" },
  });
  const secret = /#(.+)$/.exec(v.parse(NewMember, invited.json).link ?? "")?.[1];
  const join = (tried: unknown) =>
    server.send("POST", "/api/join/", { body: { secret: tried, password }, address });
  const setup = () =>
    server.send("POST", "/api/setup/", { body: { secret: "guess", email: "a@b", password }, address });

  for (let at = 0; at < 4; at++) expect((await join(`guess${at}`)).status).toBe(404);
  for (let at = 0; at < 3; at++) expect((await register(`guess${at}`)).status).toBe(401);
  for (let at = 0; at < 3; at++) expect((await setup()).status).toBe(404);
  for (const refused of [await join("guess"), await register("guess"), await setup()]) {
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "60"]);
  }
  expect((await register(token)).status).toBe(201);
  expect((await join(secret)).status).toBe(200);
  expect((await signIn(address)).status).toBe(200);
  await spray(address);
  const other = { name: "db", ...(await makeKeys()), registration_token: token };
  expect((await sendRegistration(server, "acme", other, { address })).status).toBe(201);
});

describe("a wall clock that is set back by a day", () => {
  test("neither extends nor ends the limit of wrong passwords", async () => {
    step(86_400_000);
    await wrong(10, "192.0.2.1");
    step(0);
    const refused = await signIn("192.0.2.1");
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "60"]);
    server.clock.ms += 60_000;
    expect((await signIn("192.0.2.1")).status).toBe(200);
  });

  test("leaves no network known for longer than 90 days", async () => {
    step(86_400_000);
    expect((await signIn("192.0.2.1")).status).toBe(200);
    step(0);
    expect((await signIn("192.0.2.2")).status).toBe(200);
    const kept = await server.db.all("SELECT network, seen_at FROM known_networks ORDER BY network");
    expect(kept.map((row) => [row["network"], row["seen_at"]])).toEqual([
      ["192.0.2.1", server.clock.ms],
      ["192.0.2.2", server.clock.ms],
    ]);
  });
});
