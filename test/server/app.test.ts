// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { errorTable, isErrorCode } from "../../src/base/errors.ts";
import { hashToken, makeOpaqueToken } from "../../src/pki/opaque.ts";
import { errorsOf } from "../../src/server/docs/openapi.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { maxBodyBytes } from "../../src/server/http/body.ts";
import type { Route } from "../../src/server/http/route.ts";
import { createServiceToken } from "../../src/server/users/service-tokens.ts";
import { operator } from "../../src/server/audit/record.ts";
import { pair, signInTo } from "../support/people.ts";
import { makeTestServer, type Answer, type TestServer } from "../support/server.ts";

let server: TestServer;
let acme: Organization;
const tokens = {
  member: "",
  admin: "",
  owner: "",
  staff: "",
  stranger: "",
  node: "",
  service: "",
  expired: "",
};
let nodeId = 0;

beforeAll(async () => {
  server = await makeTestServer();
  acme = await server.organization("acme");
  const other = await server.organization("other", "10.78.0.0/16");
  for (const role of ["member", "admin", "owner"] as const) {
    tokens[role] = await server.person(`${role}@example.org`);
    await server.join(acme, `${role}@example.org`, role);
  }
  tokens.staff = await server.person("staff@example.org", { isStaff: true });
  tokens.stranger = await server.person("stranger@example.org");
  await server.join(other, "stranger@example.org", "admin");
  const { services } = server.app;
  const maker = { userId: null, actor: operator };
  tokens.service = (await createServiceToken(services, acme, { name: "ci", role: "admin" }, maker)).token;
  const user = await server.db.get("SELECT id FROM users WHERE email = 'member@example.org'");
  server.clock.ms -= 3_600_000;
  tokens.expired = (await services.sessions.start(Number(user?.["id"]))).access;
  server.clock.ms += 3_600_000;
  tokens.node = makeOpaqueToken(services.system.random);
  nodeId = await server.db.write(async (tx) => {
    const row = await tx.get(
      `INSERT INTO nodes (org_id, name, ip, state, token_hash, created_at)
       VALUES ($1, 'walker', '10.77.200.1', 'active', $2, 0) RETURNING id`,
      [acme.id, hashToken(tokens.node)],
    );
    return Number(row?.["id"]);
  });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
});

const fill = (path: string) =>
  path
    .replace(":slug", "acme")
    .replace(/nodes\/:id\{[^}]*\}+/, `nodes/${nodeId}`)
    .replaceAll(/:(id|delivery|session)\{[^/]*/g, "987654")
    .replace(/:[a-z]+(\{[^/]*)?/g, "nothing");

function expectError(answer: Answer, status: number, code?: string): void {
  const { json } = answer;
  const body = typeof json === "object" && json !== null ? { code: undefined, ...json } : { code: undefined };
  expect([answer.status, body]).toEqual([
    status,
    expect.objectContaining({
      status_code: status,
      error: expect.any(String),
      detail: expect.any(String),
    }),
  ]);
  expect(isErrorCode(String(body.code))).toBe(true);
  if (code !== undefined) expect(String(body.code)).toBe(code);
  expect(answer.headers.get("www-authenticate") ?? "").toBe(status === 401 ? 'Bearer realm="api"' : "");
  expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
}

/** Also checks that the OpenAPI document lists this status for the route. */
function expectDocumented(answer: Answer, status: number, route: Route | undefined, code?: string): void {
  expectError(answer, status, code);
  if (route === undefined) return;
  const documented = errorsOf(route).some((each) => errorTable[each][1] === status);
  expect(`${route.name} ${documented ? status : "undocumented"}`).toBe(`${route.name} ${status}`);
}

const methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const isOwnOfNode = (route: Route | undefined, method: string) =>
  route?.node === true && route.method === method;

describe("every route and method", () => {
  const walk = async (
    visit: (path: string, method: string, route: Route | undefined, all: Route[]) => Promise<void>,
  ) => {
    const paths = new Set(server.app.routes.map((route) => route.path));
    for (const path of paths) {
      const all = server.app.routes.filter((route) => route.path === path);
      for (const method of methods)
        await visit(
          path,
          method,
          all.find((route) => route.method === method),
          all,
        );
    }
  };

  test("a node's token gets 403 on all routes except its own checkin, download_config and reports", async () => {
    await walk(async (path, method, route) => {
      if (isOwnOfNode(route, method)) return;
      const answer = await server.send(method, fill(path), { token: tokens.node });
      expectDocumented(answer, 403, route, "node_token_scope");
    });
    const own = server.app.routes
      .filter((route) => route.node === true)
      .map((route) => `${route.method} ${route.path}`);
    expect(
      own.every((each) =>
        /(POST .*\/(checkin|update_report|drill_report)\/|GET .*\/download_config\/)$/.test(each),
      ),
    ).toBe(true);
  });

  test("a node's token gets 403 on another node's checkin and download_config, also in another organization", async () => {
    for (const route of server.app.routes.filter((each) => each.node === true)) {
      for (const path of [
        fill(route.path).replace(String(nodeId), String(nodeId + 1)),
        fill(route.path).replace("acme", "other"),
      ]) {
        expectError(await server.send(route.method, path, { token: tokens.node }), 403, "node_token_scope");
      }
    }
  });

  test("without a token, or with a wrong or expired one, routes that need a sign-in answer 401", async () => {
    const wrong = makeOpaqueToken(server.app.services.system.random);
    let address = 0;
    await walk(async (path, method, route, all) => {
      const needs = (
        route ??
        all.find((each) => each.access === "public" || each.access === "register") ??
        all[0]
      )?.access;
      if (needs === "public") return;
      if (needs !== "register") {
        expectDocumented(await server.send(method, fill(path)), 401, route, "not_authenticated");
      }
      const from = { address: `198.51.100.${++address % 250}` };
      expectError(await server.send(method, fill(path), { token: wrong, ...from }), 401, "token_not_valid");
      expectError(
        await server.send(method, fill(path), { token: "eyJ.not.jwt", ...from }),
        401,
        "token_not_valid",
      );
      expectError(await server.send(method, fill(path), { token: tokens.expired }), 401, "token_not_valid");
      const basic = { headers: { Authorization: "Basic eDp5" } };
      expectError(await server.send(method, fill(path), basic), 401, "not_authenticated");
    });
  });

  test("an organization is 404 if the caller does not belong to it or it does not exist", async () => {
    await walk(async (path, method, route) => {
      if (!path.startsWith("/api/org/:slug/")) return;
      const answer = await server.send(method, fill(path), { token: tokens.stranger });
      expectDocumented(answer, 404, route, "not_found");
      const missing = fill(path).replace("acme", "nowhere");
      expectError(await server.send(method, missing, { token: tokens.owner }), 404, "not_found");
    });
  });

  test("a caller without the rights gets 403 before method, body and object are checked", async () => {
    const rank = { member: 1, admin: 2, owner: 3 } as const;
    for (const route of server.app.routes) {
      const { access, method, usersOnly } = route;
      const garbage = method === "GET" || method === "DELETE" ? {} : { raw: "{" };
      const path = fill(route.path);
      if (access === "staff" || access === "docs") {
        expectError(await server.send(method, path, { token: tokens.owner, ...garbage }), 403);
      }
      if (usersOnly === true) {
        const refused = await server.send(method, path, { token: tokens.service, ...garbage });
        expectError(refused, 403, "permission_denied");
        expect([path, refused.text]).toEqual([path, expect.stringContaining("sign in as a user")]);
      }
      const needed = access === "register" ? "admin" : access;
      if (needed !== "member" && needed !== "admin" && needed !== "owner") continue;
      for (const role of ["member", "admin"] as const) {
        if (rank[role] >= rank[needed]) continue;
        expectError(
          await server.send(method, path, { token: tokens[role], ...garbage }),
          403,
          "permission_denied",
        );
      }
      if (needed !== "member") {
        expectError(
          await server.send(method, path, { token: tokens.staff, ...garbage }),
          403,
          "permission_denied",
        );
      }
    }
  });

  test("an unknown method gets 405 with the allowed methods", async () => {
    await walk(async (path, method, route, all) => {
      if (route !== undefined) return;
      const staff = all.some((each) => each.access === "staff" || each.access === "docs");
      const token = staff ? tokens.staff : tokens.owner;
      const answer = await server.send(method, fill(path), { token });
      expectError(answer, 405, "method_not_allowed");
      const allow = answer.headers.get("allow")?.split(", ") ?? [];
      expect(allow.filter((each) => each !== "HEAD").sort()).toEqual(all.map((each) => each.method).sort());
    });
  });

  test("a body that is invalid, of the wrong type, too deep, too large or not an object is refused with the error shape", async () => {
    for (const route of server.app.routes.filter(
      (each) => each.takes.body !== undefined && each.access !== "docs",
    )) {
      const token = route.access === "staff" ? tokens.staff : tokens.owner;
      const send = (raw: string | Uint8Array<ArrayBuffer>, headers: Record<string, string> = {}) =>
        server.send(route.method, fill(route.path), { token, raw, headers });
      expectDocumented(await send("{"), 400, route, "bad_request");
      expectDocumented(await send(new Uint8Array([0x22, 0xff, 0x22])), 400, route, "bad_request");
      expectDocumented(await send("[".repeat(40) + "]".repeat(40)), 400, route, "bad_request");
      expectDocumented(await send('{"a":"\\u0000"}'), 400, route, "bad_request");
      expectDocumented(await send('{"a":"\\ud800"}'), 400, route, "bad_request");
      // The same key may be spelled in two ways, and stand at any depth.
      expectDocumented(await send('{"a":1,"\\u0061":1}'), 400, route, "bad_request");
      expectDocumented(await send('{"a":[{"b":{"c:":":"},"b":1}]}'), 400, route, "bad_request");
      expectDocumented(await send("[]"), 400, route, "validation_failed");
      expectDocumented(
        await send("{}", { "Content-Type": "text/plain" }),
        415,
        route,
        "unsupported_media_type",
      );
      expectDocumented(
        await send("{}", { "Content-Encoding": "gzip" }),
        415,
        route,
        "unsupported_media_type",
      );
      expectDocumented(
        await send(JSON.stringify({ a: "x".repeat(route.maxBody ?? maxBodyBytes) })),
        413,
        route,
        "payload_too_large",
      );
      // A node may be newer, and say more.
      if (!["nodes_checkin", "nodes_update_report", "nodes_drill_report"].includes(route.name)) {
        const answer = await send('{"no_such_field":1}');
        expectError(answer, 400, "validation_failed");
        expect(answer.text).toContain('"no_such_field":["This field is unknown."]');
      }
    }
  });

  test("a body is read alike with and without Content-Length, and with a byte order mark", async () => {
    const bytes = Buffer.from('\ufeff{"name":7}');
    for (const body of [bytes, new Blob([bytes]).stream()]) {
      const request = new Request("https://control.example/api/org/acme/groups/", {
        method: "POST",
        headers: {
          Authorization: `Bearer ${tokens.owner}`,
          "Content-Type": "application/json",
          ...(body === bytes ? { "Content-Length": String(bytes.length) } : {}),
        },
        body,
      });
      const answer = await server.app.fetch(request, { addressOf: () => "192.0.2.1" });
      expect([answer.status, Object(await answer.json()).code]).toEqual([400, "validation_failed"]);
    }
  });

  test("every path without its final slash redirects to the route", async () => {
    for (const path of new Set(server.app.routes.map((route) => route.path))) {
      if (!path.endsWith("/") || path === "/") continue;
      const short = fill(path).replace(/\/$/, "");
      const get = await server.send("GET", `${short}?a=b`);
      expect([get.status, get.headers.get("location")]).toEqual([301, `${fill(path)}?a=b`]);
      expect((await server.send("POST", short)).status).toBe(308);
    }
  });
});

test("/ leads a browser to the console, and is 404 for programs", async () => {
  const browser = await server.send("GET", "/", { headers: { Accept: "text/html,*/*" } });
  expect([browser.status, browser.headers.get("location")]).toEqual([302, "/console/"]);
  expectError(await server.send("GET", "/"), 404, "not_found");
  expectError(await server.send("GET", "/", { token: tokens.staff }), 404, "not_found");
});

describe("unknown paths", () => {
  test.each([
    "/api/",
    "/api/nothing/",
    "/api/org/acme/nodes/abc/",
    "//evil.example/api/org",
    "/api/org/acme/x/../../../etc",
  ])("%s is 404 for everybody", async (path) => {
    for (const token of [undefined, tokens.node, tokens.staff]) {
      const answer = await server.send("GET", path, token === undefined ? {} : { token });
      expectError(answer, 404, "not_found");
    }
  });
});

test("a token that was never issued counts as a guess; an expired token and one of another kind do not", async () => {
  const address = "203.0.113.9";
  const { refresh } = pair(await signInTo(server, "member@example.org"));
  const guess = () =>
    server.send("GET", "/api/org/", { token: makeOpaqueToken(server.app.services.system.random), address });
  for (let at = 0; at < 12; at++) {
    expect((await server.send("GET", "/api/org/", { token: tokens.expired, address })).status).toBe(401);
    expect((await server.send("GET", "/api/org/", { token: refresh, address })).status).toBe(401);
  }
  for (let at = 0; at < 10; at++) expect((await guess()).status).toBe(401);
  const refused = await guess();
  expectError(refused, 429, "throttled");
  expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
  // A valid token from the same address still works.
  expect((await server.send("GET", "/api/org/", { token: tokens.member, address })).status).toBe(200);
  server.clock.ms += 61_000;
  expect((await guess()).status).toBe(401);
});

test("an unexpected failure answers only a request id, and the log has the reason", async () => {
  await server.db.write((tx) =>
    tx.run("UPDATE organizations SET config_overrides = 'no json' WHERE slug = 'other'"),
  );
  const answer = await server.send("GET", "/api/org/other/", { token: tokens.stranger });
  expectError(answer, 500, "internal");
  const requestId = answer.headers.get("x-request-id") ?? "";
  expect(answer.text).toContain(requestId);
  expect(answer.text).not.toContain("no json");
  expect(server.log.some((line) => line.includes(requestId))).toBe(true);
  await server.db.write((tx) =>
    tx.run("UPDATE organizations SET config_overrides = '{}' WHERE slug = 'other'"),
  );
});

test("public routes ignore an Authorization header of another scheme", async () => {
  const headers = { Authorization: "Basic eDp5" };
  expect((await server.send("GET", "/healthz", { headers })).status).toBe(200);
});

test("HEAD answers as GET without a body", async () => {
  const answer = await server.send("HEAD", "/api/org/", { token: tokens.member });
  expect([answer.status, answer.text]).toEqual([200, ""]);
});

test("a check-in answers alike with and without a query", async () => {
  const body = { version: "0.1.0", uptime: 1 };
  const send = (path: string) => server.send("POST", path, { token: tokens.node, body });
  const usual = `/api/org/acme/nodes/${nodeId}/checkin/`;
  for (const path of [usual, `${usual}?x=1`]) {
    expect((await send(path)).status).toBe(200);
  }
  expect((await send(usual.slice(0, -1))).headers.get("location")).toBe(usual);
  expectError(await server.send("GET", usual, { token: tokens.admin }), 405, "method_not_allowed");
  expectError(await send(usual.replace("acme", "other")), 403, "node_token_scope");
  expectError(await send(usual.replace("acme", "Acme")), 403, "node_token_scope");
  for (const path of [`/${usual}`, `${usual}/`, `/x${usual}`, usual.replace(`${nodeId}`, "1".repeat(16))]) {
    expectError(await send(path), 404, "not_found");
  }
});

describe("a path has one spelling", () => {
  const spelled = (segment: string): string[] =>
    /^[1-9]/.test(segment)
      ? [
          `0${segment}`,
          `+${segment}`,
          `-${segment}`,
          `${segment}e0`,
          `${segment}.0`,
          `${segment}.`,
          `0x${segment}`,
        ]
      : [];
  const encoded = (segment: string): string =>
    `%${segment.charCodeAt(0).toString(16).toUpperCase()}${segment.slice(1)}`;

  test("in each place of each route: another one is unknown", async () => {
    const wrong: string[] = [];
    for (const { method, path } of server.app.routes) {
      const segments = fill(path).split("/").slice(1, -1);
      for (const [at, segment] of segments.entries()) {
        const isNumber = /:[a-z]+\{\[1-9\]/.test(path.split("/")[at + 1] ?? "");
        for (const other of [encoded(segment), ...(isNumber ? spelled(segment) : [])]) {
          const given = `/${segments.with(at, other).join("/")}/`;
          const answer = await server.send(method, given, { token: tokens.owner });
          if (answer.status !== 404 || !answer.text.includes("There is no such resource."))
            wrong.push(`${method} ${given}: ${answer.status}`);
        }
      }
    }
    expect(wrong).toEqual([]);
  });

  test("the listener's own table passes another one on", async () => {
    for (const { path, method, answer } of server.app.direct) {
      const plain = path.replace(":slug", "acme").replace(":id", `${nodeId}`);
      for (const id of [`0${nodeId}`, `+${nodeId}`, `${nodeId}.0`, `%3${nodeId}`]) {
        const request = new Request(`https://control.example${plain.replace(`/${nodeId}/`, `/${id}/`)}`, {
          method,
        });
        expect(answer(request, { addressOf: () => "" }, { slug: "acme", id })).toBeUndefined();
      }
    }
  });

  test("a slug", async () => {
    for (const slug of [
      "ACME",
      "Acme",
      "acme.",
      "acme%20",
      "%20acme",
      "acme%00",
      "\uff41cme",
      "acme;x",
      "acme%2F",
      "%2561cme",
    ]) {
      const answer = await server.send("GET", `/api/org/${slug}/nodes/`, { token: tokens.staff });
      expect([slug, answer.status]).toEqual([slug, 404]);
    }
  });

  test("a group's name may be encoded as clients do", async () => {
    const name = "svc:a.b_c";
    await server.send("POST", "/api/org/acme/groups/", { token: tokens.owner, body: { name } });
    for (const given of [name, encodeURIComponent(name)])
      expect(
        (await server.send("GET", `/api/org/acme/groups/${given}/`, { token: tokens.owner })).status,
      ).toBe(200);
    for (const given of ["svc%3aa.b_c", "svc:a%2Eb_c", "SVC:a.b_c", "svc:a.b_c."])
      expect(
        (await server.send("GET", `/api/org/acme/groups/${given}/`, { token: tokens.owner })).status,
      ).toBe(404);
  });
});
