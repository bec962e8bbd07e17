// Known faults of similar control planes, unless another test covers them.

import { afterEach, beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { TokenPair } from "../../src/protocol/sign-in.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { registerNode } from "../support/nodes.ts";
import { makeTestServer, password, type TestServer } from "../support/server.ts";

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

test("a node that checks in for days adds no rows", async () => {
  const node = await registerNode(server, acme, "walker");
  const tables = ["events", "nodes", "sightings", "certificates", "notices", "addresses", "deliveries"];
  const rows = async () => {
    await server.app.flush();
    const counts = tables.map((table) => server.db.get(`SELECT count(*) AS n FROM ${table}`));
    return (await Promise.all(counts)).map((row) => Number(row?.["n"]));
  };
  await node.checkin();
  const before = await rows();
  for (let at = 0; at < 500; at++) {
    server.clock.ms += 60_000;
    expect((await node.checkin({ uptime: at })).status).toBe(200);
  }
  expect(await rows()).toEqual(before);
});

test("two servers share no key: tokens of one are refused by the other", async () => {
  await using other = await makeTestServer();
  await other.person("owner@example.org");
  expect((await server.send("GET", "/api/user/", { token: owner })).status).toBe(200);
  expect((await other.send("GET", "/api/user/", { token: owner })).status).toBe(401);
});

test("one setting bounds every access token, another one every refresh token", async () => {
  const signIn = { body: { email: "owner@example.org", password } };
  const pair = async (path: string, options: object) =>
    v.parse(TokenPair, (await server.send("POST", path, options)).json);
  const me = async (token: string) => (await server.send("GET", "/api/user/", { token })).status;
  const first = await pair("/api/token/", signIn);
  const second = await pair("/api/token/refresh/", { body: { refresh: first.refresh } });
  server.clock.ms += 899_000;
  expect([await me(first.access), await me(second.access)]).toEqual([200, 200]);
  server.clock.ms += 2000;
  expect([await me(first.access), await me(second.access)]).toEqual([401, 401]);
  server.clock.ms += 86_400_000;
  const late = await server.send("POST", "/api/token/refresh/", { body: { refresh: second.refresh } });
  expect(late.status).toBe(401);
});

test("other origins get no access: no answer permits them, and an HTML form cannot sign in", async () => {
  const headers = { Origin: "https://evil.example", "Access-Control-Request-Method": "POST" };
  for (const [method, path] of [
    ["OPTIONS", "/api/token/"],
    ["OPTIONS", "/api/docs/sign_in/"],
    ["GET", "/api/user/"],
    ["GET", "/healthz"],
  ] as const) {
    const answer = await server.send(method, path, { headers });
    expect([...answer.headers.keys()].filter((name) => name.startsWith("access-control"))).toEqual([]);
  }
  const raw = `{"email":"owner@example.org","password":"${password}"}`;
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
    const answer = await server.send("POST", "/api/docs/sign_in/", {
      raw,
      headers: { "Content-Type": type },
    });
    expect([answer.status, answer.headers.get("set-cookie")]).toEqual([415, null]);
  }
});

test("secrets are sent in bodies only, never in headers or URLs", async () => {
  const made = await server.send("POST", "/api/org/acme/registration_tokens/", { token: owner, body: {} });
  const { token, command } = v.parse(v.looseObject({ token: v.string(), command: v.string() }), made.json);
  expect(JSON.stringify([...made.headers])).not.toContain(token);
  expect(command).not.toMatch(new RegExp(`https?:\\S*${token}|--registration-token[ =]${token}`));
  const invited = await server.send("POST", "/api/org/acme/members/", {
    token: owner,
    body: { email: "new@example.org" },
  });
  const { link } = v.parse(v.looseObject({ link: v.string() }), invited.json);
  const { pathname, search, hash } = new URL(link);
  expect([pathname, search, hash.length]).toEqual(["/join/", "", 44]);
});

test("a group in use by a token cannot be deleted, so the token cannot recreate it unnoticed", async () => {
  const made = await server.send("POST", "/api/org/acme/registration_tokens/", {
    token: owner,
    body: { groups: ["web"] },
  });
  expect(made.status).toBe(201);
  const gone = await server.send("DELETE", "/api/org/acme/groups/web/", { token: owner });
  expect([gone.status, gone.text]).toEqual([409, expect.stringContaining("registration token")]);
});
