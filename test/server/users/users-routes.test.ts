// The users of the control plane, as staff see and change them; and an organization for another owner.

import { afterEach, beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import type { Operator } from "../../../src/server/http/route.ts";
import { createUser } from "../../../src/server/users/users.ts";
import { setActive } from "../../../src/server/offboarding/user-status.ts";
import { rejection } from "../../pki/thrown.ts";
import { makeTestServer, password, type TestServer } from "../../support/server.ts";

let server: TestServer;
let staff: string;
let plain: string;
beforeEach(async () => {
  server = await makeTestServer();
  staff = await server.person("staff@example.org", { isStaff: true });
  plain = await server.person("plain@example.org");
});
afterEach(() => server[Symbol.asyncDispose]());

const Id = v.looseObject({ id: v.number() });
const idOf = async (email: string) =>
  v.parse(Id, await server.db.get("SELECT id FROM users WHERE email = $1", [email])).id;

test("staff create, find and disable a user; others may not even list them", async () => {
  const body = { email: "New@Example.org", password };
  const made = await server.send("POST", "/api/users/", { token: staff, body });
  expect([made.status, made.json]).toMatchObject([201, { email: "new@example.org", is_staff: false }]);
  expect((await server.send("POST", "/api/users/", { token: staff, body })).status).toBe(409);
  const found = await server.send("GET", "/api/users/?search=NEW&page_size=1", { token: staff });
  expect(found.json).toMatchObject([{ email: "new@example.org", is_active: true }]);
  const all = await server.send("GET", "/api/users/?page_size=2", { token: staff });
  expect([all.headers.get("X-Total-Count"), all.headers.get("Link")]).toEqual([
    "3",
    expect.stringContaining('rel="next"'),
  ]);
  const { id } = v.parse(Id, made.json);
  for (const [method, path, body2] of [
    ["GET", "/api/users/", undefined],
    ["POST", "/api/users/", { email: "x@example.org", password }],
    ["PATCH", `/api/users/${id}/`, { is_active: false }],
  ] as const) {
    expect((await server.send(method, path, { token: plain, body: body2 })).status).toBe(403);
  }
  const disabled = await server.send("PATCH", `/api/users/${id}/`, {
    token: staff,
    body: { is_active: false },
  });
  expect(disabled.json).toMatchObject({ is_active: false, access_left: [] });
  expect((await server.send("GET", `/api/users/${id}/`, { token: plain })).status).toBe(403);
  expect(
    (await server.send("PATCH", "/api/users/999/", { token: staff, body: { is_active: true } })).status,
  ).toBe(404);
});

test("the last staff user cannot be disabled, and no route sets the password of another", async () => {
  const id = await idOf("staff@example.org");
  const last = await server.send("PATCH", `/api/users/${id}/`, { token: staff, body: { is_active: false } });
  expect([last.status, last.json]).toMatchObject([409, { detail: expect.stringContaining("last staff") }]);
  const other = await idOf("plain@example.org");
  const set = await server.send("PATCH", `/api/users/${other}/`, {
    token: staff,
    body: { password: "mine now, mine" },
  });
  expect(set.status).toBe(400);
});

test("a request of staff that is no longer staff does not complete", async () => {
  const id = await idOf("staff@example.org");
  const actor = { kind: "person", id, ip: null } as const;
  await server.db.write((tx) => tx.run("UPDATE users SET is_staff = 0 WHERE id = $1", [id]));
  const user = { email: "late@example.org", password, isStaff: true };
  expect((await rejection(createUser(server.app.services, user, actor))).code).toBe("permission_denied");
  const disabling = setActive(server.app.services, "plain@example.org", false, actor);
  expect((await rejection(disabling)).code).toBe("permission_denied");
  expect(await server.db.get("SELECT id FROM users WHERE email = $1", ["late@example.org"])).toBeUndefined();
});

test("staff create an organization for another owner, and are then only visitors there", async () => {
  const body = { slug: "acme", network: "10.77.0.0/16", owner: "plain@example.org", certificate_version: 2 };
  const made = await server.send("POST", "/api/org/", { token: staff, body });
  expect([made.status, made.json]).toMatchObject([201, { slug: "acme", certificate_version: 2 }]);
  const seen = await server.send("GET", "/api/org/acme/", { token: staff });
  expect(seen.json).toMatchObject({ role: null });
  expect((await server.send("GET", "/api/org/acme/", { token: plain })).json).toMatchObject({
    role: "owner",
  });
  expect((await server.send("DELETE", "/api/org/acme/", { token: staff })).status).toBe(403);
  const nobody = await server.send("POST", "/api/org/", {
    token: staff,
    body: { ...body, slug: "b", owner: "no@example.org" },
  });
  expect([nobody.status, nobody.json]).toMatchObject([
    404,
    { hint: expect.stringContaining("admin user create") },
  ]);
});

test("the operator exists only in this process: the same request over a listener is anonymous", async () => {
  const operator: Operator = { kind: "operator", uid: 7 };
  const request = () => new Request("https://control.example/api/users/");
  const inside = await server.app.fetch(request(), { addressOf: () => "", operator });
  expect(inside.status).toBe(200);
  const outside = await server.app.fetch(request(), { addressOf: () => "192.0.2.1" });
  expect(outside.status).toBe(401);
});

test("revoked nodes are a list of their own, whose links stay in it, with the reason of the revocation", async () => {
  const acme = await server.organization("acme");
  await server.join(acme, "plain@example.org", "owner");
  const nodes = "/api/org/acme/nodes/";
  for (const name of ["one", "two"]) {
    const made = await server.send("POST", nodes, { token: plain, body: { name } });
    const { id } = v.parse(Id, made.json);
    const gone = await server.send("DELETE", `${nodes}${id}/?reason=stolen%20bag`, { token: plain });
    expect(gone.status).toBe(204);
  }
  expect((await server.send("GET", nodes, { token: plain })).json).toEqual([]);
  const page = await server.send("GET", `${nodes}?revoked=true&page_size=1`, { token: plain });
  expect(page.json).toMatchObject([{ name: "one", state: "revoked" }]);
  const [, next = ""] = /<([^>]*)>; rel="next"/.exec(page.headers.get("Link") ?? "") ?? [];
  expect(
    (await server.send("GET", new URL(next).pathname + new URL(next).search, { token: plain })).json,
  ).toMatchObject([{ name: "two" }]);
  const events = await server.send("GET", "/api/org/acme/events/?limit=1000", { token: plain });
  expect(events.text).toContain('"reason":"stolen bag"');
});
