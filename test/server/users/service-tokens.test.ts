// What service tokens may do: their scopes, their lifetime, the networks that they come from.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { makeServiceAdmission } from "../../../src/server/users/token-scopes.ts";
import { makeAcme } from "../../support/people.ts";
import { makeTestServer, type Answer, type TestServer } from "../../support/server.ts";

const day = 86_400_000;
let server: TestServer;
let owner: string;

beforeEach(async () => {
  server = await makeTestServer({ accessLifetimeS: 400 * 86_400 });
  ({ owner } = await makeAcme(server));
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

type Made = { id: number; token: string; expires_at: string; scopes: string[]; networks: string[] | null };
const ask = (body: object) =>
  server.send("POST", "/api/org/acme/service_tokens/", {
    token: owner,
    body: { name: "ci", role: "admin", ...body },
  });
const make = async (body: object = {}) => (await ask(body)).json as Made;
const codeOf = ({ status, json }: Answer) => [status, (json as { code?: string } | undefined)?.code];
const scopeMissing = [403, "token_scope"];

const read = ["GET", "nodes/", undefined] as const;
const node = ["POST", "nodes/", { name: "web" }] as const;
const group = ["POST", "groups/", { name: "web" }] as const;
const webhook = ["POST", "webhooks/", { url: "https://9.9.9.9/hook" }] as const;
const send = (
  token: string,
  [method, path, body]: readonly [string, string, object | undefined],
  address?: string,
) =>
  server.send(method, `/api/org/acme/${path}`, {
    token,
    ...(body === undefined ? {} : { body }),
    ...(address === undefined ? {} : { address }),
  });

describe("a new token", () => {
  test("lives 90 days unless asked otherwise", async () => {
    const usual = await make();
    const short = await make({ expires_in: "1d" });
    expect([usual.expires_at, short.expires_at]).toEqual(["2027-02-19T00:00:00Z", "2026-11-22T00:00:00Z"]);
    server.clock.ms += 2 * day;
    expect((await send(short.token, read)).status).toBe(401);
    expect((await send(usual.token, read)).status).toBe(200);
    server.clock.ms += 88 * day;
    expect((await send(usual.token, read)).status).toBe(401);
  });

  test("that could do nothing is refused: webhooks are for admins alone", async () => {
    const { status, json } = await ask({ role: "member", scopes: ["webhooks"] });
    expect([status, json]).toMatchObject([
      400,
      { errors: { scopes: [expect.stringContaining("Only admins")] } },
    ]);
    expect((await ask({ role: "member", scopes: ["webhooks", "read"] })).status).toBe(201);
    expect((await ask({ role: "admin", scopes: ["webhooks"] })).status).toBe(201);
  });

  test("names the user who made it, as a registration token does", async () => {
    const { json: me } = await server.send("GET", "/api/user/", { token: owner });
    expect((await ask({})).json).toMatchObject({ created_by: expect.any(Number) });
    for (const kind of ["service_tokens", "registration_tokens"]) {
      const path = `/api/org/acme/${kind}/`;
      const made = await server.send("POST", path, {
        token: owner,
        body: kind === "service_tokens" ? { name: "b", role: "member" } : {},
      });
      const { id } = made.json as { id: number };
      const { json } = await server.send("GET", `${path}${id}/`, { token: owner });
      expect(json).toMatchObject({ created_by: (me as { id: number }).id });
    }
  });

  test("has all scopes that its role can use", async () => {
    expect((await make()).scopes).toEqual(["read", "nodes", "policy", "webhooks"]);
    expect((await make({ role: "member" })).scopes).toEqual(["read"]);
    const { json } = await server.send("GET", "/api/org/acme/service_tokens/1/", { token: owner });
    expect(json).toMatchObject({ scopes: ["read", "nodes", "policy", "webhooks"], networks: null });
  });

  test("that may not read is told the least scope that it needs", async () => {
    const { token } = await make({ scopes: ["nodes"] });
    const hintOf = async (...request: Parameters<typeof send>) =>
      ((await send(...request)).json as { hint?: string }).hint;
    expect(await hintOf(token, group)).toBe("This needs the scope policy.");
    expect(await hintOf(token, ["GET", "events/", undefined])).toBe("This needs the scope read.");
    expect(await hintOf(token, ["GET", "groups/", undefined])).toBe("This needs the scope read or policy.");
    expect(await hintOf(token, ["PATCH", "", {}])).toBe("No scope permits this: sign in as a user.");
  });

  test.each([[{ scopes: ["ca"] }], [{ scopes: [] }], [{ networks: ["here"] }], [{ networks: [] }]])(
    "is refused with %p",
    async (body) => expect((await ask(body)).status).toBe(400),
  );
});

describe("the last use", () => {
  const used = async () => {
    await server.db.writeFor("rows", async () => undefined);
    const { json } = await server.send("GET", "/api/org/acme/service_tokens/1/", { token: owner });
    const { last_used_at: at } = json as { last_used_at: string | null };
    return at === null ? null : Date.parse(at);
  };

  test("is recorded at most every five minutes, by whatever server", async () => {
    const { token } = await make({ scopes: ["nodes"] });
    expect(await used()).toBeNull();
    const start = server.clock.ms;
    const later = async (minutes: number) => {
      server.clock.ms = start + minutes * 60_000;
      expect((await send(token, read)).status).toBe(200);
      return ((await used()) ?? 0) - start;
    };
    expect(await later(0)).toBe(0);
    expect(await later(4)).toBe(0);
    const other = makeServiceAdmission({ db: server.db, now: () => server.clock.ms });
    const caller = { kind: "service", tokenId: 1, slug: "acme", orgId: 1, role: "admin" } as const;
    const given = { scopes: null, networks: null, expiresAt: null };
    other({ ...caller, ...given }, { method: "GET" }, "192.0.2.1");
    expect((await used()) ?? 0).toBe(start);
    expect(await later(5)).toBe(300_000);
  });

  test("is not changed by a request that the token is refused for", async () => {
    const { token } = await make({ networks: ["192.0.2.0/24"], scopes: ["nodes"] });
    expect((await send(token, read, "198.51.100.1")).status).toBe(403);
    expect((await send(token, group, "192.0.2.9")).status).toBe(403);
    expect(await used()).toBeNull();
  });

  test("no request fails because it cannot be recorded", async () => {
    const { token } = await make();
    const refuse = {
      sqlite:
        "CREATE TRIGGER refused BEFORE UPDATE ON service_tokens BEGIN SELECT raise(ABORT, 'refused'); END",
      postgres: "ALTER TABLE service_tokens ADD CONSTRAINT refused CHECK (last_used_at IS NULL)",
    };
    await server.db.write((tx) => tx.run(refuse[server.db.dialect]));
    expect((await send(token, read)).status).toBe(200);
    expect(await used()).toBeNull();
  });
});

describe("scopes", () => {
  test.each([
    ["read", [200, scopeMissing, scopeMissing, scopeMissing]],
    ["nodes", [200, 201, scopeMissing, scopeMissing]],
    ["policy", [scopeMissing, scopeMissing, 201, scopeMissing]],
    ["webhooks", [scopeMissing, scopeMissing, scopeMissing, 201]],
  ])("%s permits what it names", async (scope, expected) => {
    const { token } = await make({ scopes: [scope] });
    const answers = [];
    for (const request of [read, node, group, webhook]) {
      const answer = await send(token, request);
      answers.push(answer.status < 400 ? answer.status : codeOf(answer));
    }
    expect(answers).toEqual(expected);
  });

  test("read permits a plan, which changes nothing", async () => {
    const { token } = await make({ role: "member" });
    const answer = await send(token, ["POST", "policy/plan/", { policy: "rules: []" }]);
    expect(answer.status).toBe(200);
  });

  test("the role still limits: a member's token changes nothing whatever its scopes", async () => {
    const { token } = await make({ role: "member", scopes: ["read", "nodes", "policy", "webhooks"] });
    expect(codeOf(await send(token, node))).toEqual([403, "permission_denied"]);
  });

  test("none permits to make tokens, or to touch CAs, people, settings or sign-in", async () => {
    const { token } = await make();
    const member = { email: "eve@example.org" };
    for (const request of [
      ["POST", "service_tokens/", { name: "more", role: "admin" }],
      ["POST", "registration_tokens/", {}],
      ["GET", "service_tokens/", undefined],
      ["DELETE", "service_tokens/1/", undefined],
      ["POST", "members/", member],
      ["PATCH", "members/1/", { role: "member" }],
      ["DELETE", "members/1/", undefined],
      ["POST", "ca/rotate/", {}],
      ["PATCH", "", { second_factor_required: false }],
      ["DELETE", "", undefined],
    ] as const) {
      const answer = await send(token, request);
      expect([request[0], request[1], answer.status]).toEqual([request[0], request[1], 403]);
    }
    for (const [method, path] of [
      ["GET", "/api/user/"],
      ["POST", "/api/user/totp/"],
      ["POST", "/api/user/step_up/"],
      ["GET", "/api/user/sessions/"],
      ["PATCH", "/api/sign_in/"],
      ["POST", "/api/users/"],
    ] as const) {
      const answer = await server.send(method, path, { token, ...(method === "GET" ? {} : { body: {} }) });
      expect([path, answer.status]).toEqual([path, 403]);
    }
  });

  test("every route that changes something is closed to tokens, or names its scope, or is listed here", () => {
    const open = server.app.routes.filter(
      ({ method, access, usersOnly, scope }) =>
        method !== "GET" &&
        usersOnly !== true &&
        scope === undefined &&
        !["public", "person", "staff", "docs", "owner"].includes(access),
    );
    // Closed by their missing scope: CAs, settings, and new organizations.
    expect(open.map(({ name }) => name).sort((a, b) => a.localeCompare(b))).toEqual([
      "ca_rotate",
      "org_partial_update",
    ]);
  });
});

test("a token is valid only from its networks", async () => {
  const { token, networks } = await make({ networks: ["198.51.100.0/24", "2001:db8::/32", "203.0.113.7"] });
  expect(networks).toEqual(["198.51.100.0/24", "2001:db8::/32", "203.0.113.7/32"]);
  const from = async (address: string) => codeOf(await send(token, read, address));
  for (const address of ["198.51.100.9", "2001:db8::1", "203.0.113.7"])
    expect([address, ...(await from(address))]).toEqual([address, 200, undefined]);
  for (const address of ["192.0.2.1", "203.0.113.8", "2001:db9::1", ""])
    expect([address, ...(await from(address))]).toEqual([address, ...scopeMissing]);
});

test("a token of an earlier release keeps all rights of its role, without an end", async () => {
  const { token } = await make();
  await server.db.write((tx) => tx.run("UPDATE service_tokens SET scopes = NULL, expires_at = NULL"));
  server.clock.ms += 365 * day;
  for (const request of [read, node, group, webhook])
    expect((await send(token, request)).status).toBeLessThan(300);
  expect((await send(token, ["PATCH", "", { name: "New" }])).status).toBe(200);
  expect((await send(token, ["POST", "service_tokens/", { name: "x", role: "member" }])).status).toBe(403);
});
