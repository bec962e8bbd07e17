// Sessions of browsers: the cookie, when they end, who may use them, and what other sites cannot do with them.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { operator } from "../../../../src/server/audit/record.ts";
import { changeRole, removeMember } from "../../../../src/server/offboarding/member-changes.ts";
import { setActive } from "../../../../src/server/offboarding/user-status.ts";
import { setPassword } from "../../../../src/server/users/sign-in/set-password.ts";
import { deleteEnded } from "../../../../src/server/retention/ended-records.ts";
import { hashToken } from "../../../../src/pki/opaque.ts";
import type { Organization } from "../../../../src/api/organizations.ts";
import {
  browserWith,
  cookieIn,
  ownPage,
  postSession,
  signInBrowser,
  type Browser,
} from "../../../support/browser-session.ts";
import { makeAcme, membershipOf } from "../../../support/people.ts";
import { makeTestServer, password, type TestServer } from "../../../support/server.ts";

const hour = 3_600_000;
const email = "owner@example.org";
let server: TestServer;
let acme: Organization;
let owner: string;

beforeEach(async () => {
  server = await makeTestServer();
  ({ acme, owner } = await makeAcme(server));
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

const whoAmI = async (browser: Browser) => (await browser.send("GET", "/api/user/")).status;
const sessionsOf = async (browser: Browser) => {
  const { json } = await browser.send("GET", "/api/user/sessions/");
  type Listed = { id: number; kind: string; device: string; address: string; is_current: boolean };
  return (json as Listed[]).filter(({ kind }) => kind === "browser");
};

describe("signing in with a browser", () => {
  test("sets a cookie that scripts, other hosts and plain HTTP do not get, and stores its hash", async () => {
    const answer = await postSession(server, { email: "OWNER@example.org", password });
    expect([answer.status, answer.json]).toEqual([
      201,
      { id: 1, email, is_staff: false, expires_at: "2026-11-28T00:00:00Z" },
    ]);
    const [session = ""] = answer.headers.getSetCookie();
    const cookie = cookieIn(answer, "__Host-session") ?? "";
    expect(session).toBe(`__Host-session=${cookie}; Path=/; HttpOnly; Secure; SameSite=Lax; Max-Age=604800`);
    const stored = await server.db.get("SELECT * FROM browser_sessions WHERE family IS NULL");
    expect(stored?.["token_hash"]).toBe(hashToken(cookie));
    expect(JSON.stringify(stored)).not.toContain(cookie);
  });

  test("a wrong password gives none", async () => {
    const answer = await postSession(server, { email, password: "wrong" });
    expect([answer.status, answer.headers.getSetCookie()]).toEqual([401, []]);
  });

  test("the session opens the same API as a token, with the same rights", async () => {
    const browser = await signInBrowser(server);
    for (const path of ["/api/user/", "/api/org/", "/api/org/acme/nodes/"]) {
      const answer = await browser.send("GET", path);
      expect([path, answer.status, answer.text]).toEqual([
        path,
        200,
        (await server.send("GET", path, { token: owner })).text,
      ]);
    }
    const made = await browser.send("POST", "/api/org/acme/groups/", { body: { name: "web" } });
    expect(made.status).toBe(201);
    const event = await server.db.get("SELECT actor FROM events WHERE type = 'group.created'");
    expect(JSON.parse(String(event?.["actor"]))).toEqual({ kind: "person", id: 1, ip: "192.0.2.1" });
    expect((await browser.send("GET", "/api/users/")).status).toBe(403);
  });

  test("a request that names another user is refused like one without a session", async () => {
    const browser = await signInBrowser(server);
    const create = (user: string) => {
      const options = { body: { name: `for-${user}` }, headers: { "Session-User": user } };
      return browser.send("POST", "/api/org/acme/groups/", options);
    };
    expect(await create("2")).toMatchObject({ status: 401, json: { code: "token_not_valid" } });
    expect((await browser.send("GET", "/api/user/", { headers: { "Session-User": "2" } })).status).toBe(401);
    expect((await create("1")).status).toBe(201);
    const groups = (await browser.send("GET", "/api/org/acme/groups/")).text;
    expect([groups.includes("for-1"), groups.includes("for-2")]).toEqual([true, false]);
  });

  test("a token in the header counts before the cookie", async () => {
    await server.person("other@example.org");
    const other = await signInBrowser(server, "other@example.org");
    const answer = await other.send("GET", "/api/user/", { token: owner });
    expect(answer.json).toMatchObject({ email });
  });

  test("staff open the API documentation with it", async () => {
    await server.person("staff@example.org", { isStaff: true });
    const staff = await signInBrowser(server, "staff@example.org");
    expect((await staff.send("GET", "/api/schema/")).status).toBe(200);
    expect((await (await signInBrowser(server)).send("GET", "/api/schema/")).status).toBe(403);
  });

  test("without TLS it works on loopback only, and elsewhere the error says so", async () => {
    const local = { Origin: "http://127.0.0.1:8420", Host: "127.0.0.1:8420" };
    expect((await postSession(server, { email, password }, local)).status).toBe(201);
    const plain = await makeTestServer({ publicUrl: "http://control.example" });
    const refused = await postSession(plain, { email, password }, { Origin: "http://control.example" });
    expect([refused.status, refused.json]).toEqual([403, expect.objectContaining({ code: "tls_required" })]);
    await plain[Symbol.asyncDispose]();
  });
});

describe("a session ends", () => {
  test("after 12 hours without use; each use prolongs it, to 7 days at most", async () => {
    const idle = await signInBrowser(server);
    const used = await signInBrowser(server);
    for (let at = 0; at < 168 - 11; at += 11) {
      server.clock.ms += 11 * hour;
      expect(await whoAmI(used)).toBe(200);
    }
    expect(await whoAmI(idle)).toBe(401);
    server.clock.ms += 2 * hour;
    expect(await whoAmI(used)).toBe(200);
    server.clock.ms += 2 * hour;
    const ended = await used.send("GET", "/api/user/");
    expect(ended.json).toMatchObject({ code: "token_not_valid", detail: expect.stringContaining("Sign in") });
    await deleteEnded(server.app.services, hour, () => false);
    expect(await server.db.all("SELECT 1 FROM browser_sessions")).toEqual([]);
  });

  test("after 12 hours in which only the page asked, by timers; a person's request or a change keeps it", async () => {
    const left = await signInBrowser(server);
    const read = await signInBrowser(server);
    const changed = await signInBrowser(server);
    const headers = { "Session-Use": "none" };
    const byTimer = async (browser: Browser) =>
      (await browser.send("GET", "/api/org/acme/nodes/", { headers })).status;
    for (let at = 0; at < 11; at++) {
      server.clock.ms += hour;
      expect(await byTimer(left)).toBe(200);
    }
    expect(await whoAmI(read)).toBe(200);
    const body = { name: "web" };
    expect((await changed.send("POST", "/api/org/acme/groups/", { body, headers })).status).toBe(201);
    server.clock.ms += hour;
    expect([await byTimer(left), await byTimer(read), await byTimer(changed)]).toEqual([401, 200, 200]);
    server.clock.ms += 11 * hour;
    expect([await byTimer(read), await byTimer(changed)]).toEqual([401, 401]);
  });

  test("with sign-out, which needs a page of this server and removes the cookie", async () => {
    const browser = await signInBrowser(server);
    const another = await signInBrowser(server);
    expect((await browser.send("GET", "/api/session/")).status).toBe(405);
    expect(await whoAmI(browser)).toBe(200);
    const out = await browser.send("DELETE", "/api/session/");
    expect([out.status, cookieIn(out, "__Host-session")]).toEqual([204, ""]);
    expect([await whoAmI(browser), await whoAmI(another)]).toEqual([401, 200]);
    expect((await server.send("DELETE", "/api/session/", { token: owner })).status).toBe(404);
  });

  test("when it is revoked in the list, by its own user only", async () => {
    const laptop = await signInBrowser(server, email, { "User-Agent": "Firefox on a laptop" });
    const phone = await signInBrowser(server, email, { "User-Agent": "x".repeat(1000) });
    await server.person("eve@example.org");
    const eve = await signInBrowser(server, "eve@example.org");
    const list = await sessionsOf(laptop);
    expect(
      list.map(({ device, is_current }) => [device.slice(0, 7), device.length <= 201, is_current]),
    ).toEqual([
      ["Firefox", true, true],
      ["xxxxxxx", true, false],
    ]);
    const [, second] = list;
    const path = `/api/user/sessions/${second?.id}/`;
    expect((await eve.send("DELETE", path)).status).toBe(404);
    expect(await whoAmI(phone)).toBe(200);
    expect((await server.send("DELETE", path, { token: owner })).status).toBe(204);
    expect([await whoAmI(phone), await whoAmI(laptop)]).toEqual([401, 200]);
    expect((await laptop.send("DELETE", path)).status).toBe(404);
  });

  test("the list shows the address of the last use", async () => {
    const browser = await signInBrowser(server);
    server.clock.ms += 2 * 60_000;
    await browser.send("GET", "/api/user/", { address: "198.51.100.7" });
    expect(await sessionsOf(browser)).toMatchObject([{ address: "198.51.100.7" }]);
  });

  test.each<[string, () => Promise<unknown>]>([
    ["the user is disabled", () => setActive(server.app.services, "ada@example.org", false, operator)],
    [
      "the user is disabled and enabled again",
      async () => {
        await setActive(server.app.services, "ada@example.org", false, operator);
        await setActive(server.app.services, "ada@example.org", true, operator);
      },
    ],
    [
      "the operator sets a new password",
      async () => {
        const ada = await server.db.get("SELECT id FROM users WHERE email = 'ada@example.org'");
        await setPassword(server.app.services, Number(ada?.["id"]), password, operator);
      },
    ],
    [
      "the member is demoted",
      async () => {
        const id = await membershipOf(server.db, acme, "ada@example.org");
        await changeRole(server.app.services, acme, id, "member", { role: "owner", actor: operator });
      },
    ],
    [
      "the member is removed",
      async () => {
        const id = await membershipOf(server.db, acme, "ada@example.org");
        await removeMember(server.app.services, acme, id, { role: "owner", actor: operator });
      },
    ],
  ])("when %s", async (_, end) => {
    await server.person("ada@example.org");
    await server.join(acme, "ada@example.org", "admin");
    const ada = await signInBrowser(server, "ada@example.org");
    const other = await signInBrowser(server);
    expect(await whoAmI(ada)).toBe(200);
    await end();
    expect([await whoAmI(ada), await whoAmI(other)]).toEqual([401, 200]);
  });

  test("of a user, the newest 50 stay", async () => {
    const first = await signInBrowser(server);
    const [row] = await server.db.all("SELECT * FROM browser_sessions");
    await server.db.write(async (tx) => {
      for (let at = 0; at < 49; at++)
        await tx.run(
          `INSERT INTO browser_sessions (user_id, token_hash, device, address, created_at, last_used_at, ends_at)
           SELECT user_id, $2, device, address, created_at, last_used_at, ends_at FROM browser_sessions WHERE id = $1`,
          [row?.["id"] ?? 0, `copy ${at}`],
        );
    });
    expect(await whoAmI(first)).toBe(200);
    await signInBrowser(server);
    expect(await whoAmI(first)).toBe(401);
  });
});

describe("session fixation", () => {
  test("a sign-in never keeps a cookie that the browser brought, and ends its session", async () => {
    const planted = await postSession(
      server,
      { email, password },
      { Cookie: `__Host-session=${"A".repeat(43)}` },
    );
    expect(cookieIn(planted, "__Host-session")).not.toBe("A".repeat(43));
    await server.person("eve@example.org");
    const eve = await signInBrowser(server, "eve@example.org");
    const victim = await postSession(server, { email, password }, { Cookie: `__Host-session=${eve.cookie}` });
    expect(cookieIn(victim, "__Host-session")).not.toBe(eve.cookie);
    expect(await whoAmI(eve)).toBe(401);
  });

  test("a sibling host's cookie without the prefix, or with another case, is not read", async () => {
    const { cookie } = await signInBrowser(server);
    for (const name of ["session", "__host-session", "x__Host-session", "__Host-session "]) {
      const answer = await server.send("GET", "/api/user/", { headers: { Cookie: `${name}=${cookie}` } });
      expect([name, answer.status]).toEqual([name, 401]);
    }
    const both = `__Host-session_=x; __Host-session=${cookie}`;
    expect((await server.send("GET", "/api/user/", { headers: { Cookie: both } })).status).toBe(200);
  });
});

describe("requests that other sites start", () => {
  const foreign: [string, Record<string, string>, string][] = [
    ["no Origin", { "Sec-Fetch-Site": "same-origin" }, "cross_site"],
    ["another Origin", { ...ownPage, Origin: "https://evil.example" }, "cross_site"],
    ["Origin null", { ...ownPage, Origin: "null" }, "cross_site"],
    ["another port", { ...ownPage, Origin: "https://control.example:8443" }, "cross_site"],
    ["plain HTTP", { ...ownPage, Origin: "http://control.example" }, "cross_site"],
    ["a longer name", { ...ownPage, Origin: "https://control.example.evil.example" }, "cross_site"],
    ["a sibling host", { ...ownPage, "Sec-Fetch-Site": "same-site" }, "cross_site"],
    ["another site", { ...ownPage, "Sec-Fetch-Site": "cross-site" }, "cross_site"],
    ["the address bar", { ...ownPage, "Sec-Fetch-Site": "none" }, "cross_site"],
    ["no Sec-Fetch-Site", { Origin: ownPage.Origin }, "cross_site"],
    ["a form", { ...ownPage, "Content-Type": "text/plain" }, "unsupported_media_type"],
    ["a loopback page", { ...ownPage, Origin: "http://127.0.0.1:9999" }, "cross_site"],
  ];

  test.each(foreign)("with %s change nothing", async (_, headers, code) => {
    const { cookie } = await signInBrowser(server);
    const answer = await server.send("POST", "/api/org/acme/groups/", {
      raw: JSON.stringify({ name: "evil" }),
      headers: { ...headers, Cookie: `__Host-session=${cookie}` },
    });
    const refused = code === "cross_site" ? [403, code] : [415, code];
    expect([answer.status, (answer.json as { code: string }).code]).toEqual(refused as [number, string]);
    expect(await server.db.all("SELECT 1 FROM events WHERE type = 'group.created'")).toEqual([]);
  });

  test.each(foreign)("with %s do not sign in", async (_, headers, code) => {
    const answer = await server.send("POST", "/api/session/", {
      raw: JSON.stringify({ email, password }),
      headers,
    });
    expect([answer.headers.getSetCookie(), answer.json]).toEqual([[], expect.objectContaining({ code })]);
  });

  test("a body that is not JSON is refused also by endpoints that take none", async () => {
    const browser = await signInBrowser(server);
    const headers = { "Content-Type": "application/x-www-form-urlencoded" };
    const answer = await browser.send("POST", "/api/org/acme/ca/rotate/", { headers });
    expect(answer.status).toBe(415);
  });

  test("no GET has an effect: every one of them leaves all tables as they were", async () => {
    await server.db.write((tx) => tx.run("UPDATE users SET is_staff = 1"));
    const browser = await signInBrowser(server);
    const tables = ["users", "memberships", "nodes", "events", "browser_sessions", "organizations"];
    const state = () => Promise.all(tables.map((table) => server.db.all(`SELECT * FROM ${table}`)));
    const before = await state();
    const gets = server.app.routes.filter(
      // Who reads flows is recorded. Browsers send no cookie with a request of another site (SameSite).
      ({ method, path, node }) => method === "GET" && node !== true && !path.endsWith("/flows/"),
    );
    for (const { path } of gets) {
      const url = path.replace(":slug", "acme").replaceAll(/:[a-z_]+(\{[^/]*\})?/g, "1");
      await browser.send("GET", url);
    }
    expect(gets.length).toBeGreaterThan(30);
    expect(await state()).toEqual(before);
  });
});

test("a session that ended is no reason to refuse what needs no credentials", async () => {
  const stale = browserWith(server, "B".repeat(43));
  expect((await stale.send("GET", "/api/user/")).status).toBe(401);
  const answer = await stale.send("POST", "/api/token/", { body: { email, password } });
  expect(answer.status).toBe(200);
});
