// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { hash } from "node:crypto";
import { createConfig, lintFromString } from "@redocly/openapi-core";
import * as v from "valibot";
import { assets, readAsset } from "../../src/server/docs/assets.ts";
import { makeOpenApi } from "../../src/server/docs/openapi.ts";
import { redocPage, swaggerPage } from "../../src/server/docs/pages.ts";
import { signInBrowser } from "../support/browser-session.ts";
import { makeTestServer, password, type TestServer } from "../support/server.ts";

let server: TestServer;
let staff = "";
let member = "";
beforeAll(async () => {
  server = await makeTestServer();
  staff = await server.person("staff@example.org", { isStaff: true });
  member = await server.person("member@example.org");
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
});

const browser = { Accept: "text/html,application/xhtml+xml" };
const viewers = ["/api/docs/", "/api/redoc/"];
const pages = [...viewers, "/api/schema/"];
const signIn = async (email: string) => {
  const answer = await server.send("POST", "/api/docs/sign_in/", { body: { email, password } });
  const [set = ""] = answer.headers.getSetCookie();
  return { status: answer.status, set, cookie: set.split(";")[0] ?? "" };
};

test("a viewer's file that could not be read once is read again", async () => {
  const asset = Object.values(assets)[0] ?? { path: "" };
  const { path } = asset;
  asset.path = `${path}.absent`;
  expect(await readAsset("swagger-ui.js")?.catch(String)).toContain("no such file");
  asset.path = path;
  expect((await readAsset("swagger-ui.js"))?.bytes.length).toBeGreaterThan(100_000);
});

describe("docs pages", () => {
  test("without a sign-in: 401, with the form for browsers and the error shape for programs", async () => {
    for (const path of pages) {
      const html = await server.send("GET", path, { headers: browser });
      expect([html.status, html.headers.get("www-authenticate")]).toEqual([401, 'Bearer realm="api"']);
      expect(html.text).toContain("/console/files/main-");
      expect((await server.send("GET", path)).json).toMatchObject({ code: "not_authenticated" });
    }
  });

  test("staff by cookie or token: 200; others: 403", async () => {
    const { cookie, set, status } = await signIn("staff@example.org");
    expect(status).toBe(204);
    expect(set).toMatch(/; Path=\/api\/; HttpOnly; SameSite=Strict; Max-Age=28800; Secure$/);
    const other = (await signIn("member@example.org")).cookie;
    for (const path of pages) {
      expect(
        (await server.send("GET", path, { headers: { ...browser, Cookie: `a=b; ${cookie}` } })).status,
      ).toBe(200);
      expect((await server.send("GET", path, { token: staff })).status).toBe(200);
      expect((await server.send("GET", path, { headers: { ...browser, Cookie: other } })).status).toBe(403);
      expect((await server.send("GET", path, { token: member })).status).toBe(403);
      const forged = { headers: { ...browser, Cookie: `${cookie.slice(0, -4)}AAAA` } };
      expect((await server.send("GET", path, forged)).status).toBe(401);
    }
  });

  test("the cookie gives access to nothing else, and its token is not an access token", async () => {
    const { cookie } = await signIn("staff@example.org");
    expect((await server.send("GET", "/api/org/", { headers: { Cookie: cookie } })).status).toBe(401);
    const token = cookie.replace(/^[^=]*=/, "");
    expect((await server.send("GET", "/api/org/", { token })).status).toBe(401);
    expect(
      (await server.send("GET", "/api/docs/", { headers: { Cookie: `docs_session=${staff}` } })).status,
    ).toBe(401);
  });

  test("no page loads from another host, and inline scripts are allowed only by their hash", async () => {
    for (const path of viewers) {
      const { text, headers } = await server.send("GET", path, { token: staff });
      expect(text).not.toMatch(/(src|href)="(https?:)?\/\//);
      const policy = headers.get("content-security-policy") ?? "";
      expect(policy).toContain("default-src 'none'");
      expect(policy).not.toMatch(/script-src[^;]*unsafe/);
      const scripts = [...text.matchAll(/<script>(.*?)<\/script>/gs)].map((match) => match[1] ?? "");
      expect(scripts.length).toBe(1);
      for (const script of scripts) expect(policy).toContain(`'sha256-${hash("sha256", script, "base64")}'`);
    }
  });

  test("both viewers are sandboxed without an origin, and ReDoc calls nothing", async () => {
    for (const path of viewers) {
      const { headers } = await server.send("GET", path, { token: staff });
      const policy = (headers.get("content-security-policy") ?? "").split("; ");
      expect(policy).toContain("sandbox allow-scripts allow-forms");
      expect(policy).toContain(
        path === "/api/docs/" ? "connect-src 'self' https://control.example" : "connect-src 'none'",
      );
      // The HTML standard forbids both together.
      expect(headers.get("cross-origin-opener-policy")).toBeNull();
    }
  });

  test("both viewers hold the whole document, as text that cannot end its element", async () => {
    const { json } = await server.send("GET", "/api/schema/", { token: staff });
    for (const path of viewers) {
      const { text } = await server.send("GET", path, { token: staff });
      const [, held = ""] =
        /<script type="application\/json" id="document">([^<]*)<\/script>/.exec(text) ?? [];
      expect(JSON.parse(held)).toEqual(json);
    }
    const hostile = '{"title":"</script><script>alert(1)</script><!--"}';
    for (const { raw } of [swaggerPage(hostile, "https://control.example"), redocPage(hostile)]) {
      expect(raw).not.toContain("</script><script>alert");
      expect(raw).toContain('{"title":"\\u003c/script>');
    }
  });

  test("their files need no cookie, and no other file is there", async () => {
    for (const name of ["swagger-ui.js", "swagger-ui.css", "redoc.js"]) {
      const { status, headers, text } = await server.send("GET", `/api/docs/assets/${name}`);
      expect([status, headers.get("cache-control")]).toEqual([200, "private, max-age=3600"]);
      expect(text.length).toBeGreaterThan(100_000);
    }
    expect((await server.send("GET", "/api/docs/assets/main.js")).status).toBe(404);
  });

  test("what links with a secret open is the console's page, without any inline script", async () => {
    for (const path of ["/setup/", "/join/", "/reset/"]) {
      const { status, text, headers } = await server.send("GET", path, { headers: browser });
      expect([status, headers.get("content-security-policy")]).toEqual([
        200,
        expect.stringContaining("script-src 'self';"),
      ]);
      expect(text).toContain("/console/files/main-");
      expect(text).not.toMatch(/<script>|(src|href)="(https?:)?\/\//);
    }
  });
});

describe("calls of a page with an opaque origin", () => {
  const corsOf = (headers: Headers) =>
    Object.fromEntries([...headers].filter(([name]) => name.startsWith("access-control-")));
  const preflight = (path: string, method: string, more: Record<string, string> = {}) => {
    const asked = {
      Origin: "null",
      "Access-Control-Request-Method": method,
      "Access-Control-Request-Headers": "authorization,content-type",
    };
    return server.send("OPTIONS", path, { headers: { ...asked, ...more } });
  };
  const opaque = { Origin: "null" };
  const readable = {
    "access-control-allow-origin": "null",
    "access-control-expose-headers": "ETag, Link, X-Request-Id, X-Total-Count",
  };

  test("preflight of a call with a token is permitted for its method alone, without credentials", async () => {
    for (const [path, method] of [
      ["/api/user/", "GET"],
      ["/api/org/", "POST"],
      ["/api/org/acme/nodes/7/", "DELETE"],
      ["/api/org/acme/nodes/7/checkin/", "POST"],
    ] as const) {
      const { status, headers } = await preflight(path, method);
      expect([status, headers.get("vary"), corsOf(headers)]).toEqual([
        204,
        "Origin",
        {
          "access-control-allow-origin": "null",
          "access-control-allow-methods": method,
          "access-control-allow-headers": "authorization, content-type",
        },
      ]);
    }
  });

  test("other preflights get nothing: no token, another origin, a missing method, a call that needs no token", async () => {
    const refused = await Promise.all([
      preflight("/api/user/", "GET", { "Access-Control-Request-Headers": "content-type" }),
      preflight("/api/user/", "GET", { "Access-Control-Request-Headers": "x-authorization" }),
      preflight("/api/user/", "GET", { Origin: "https://evil.example" }),
      preflight("/api/user/", "GET", { Origin: "https://control.example" }),
      preflight("/api/user/", "PATCH"),
      preflight("/api/token/", "POST"),
      preflight("/api/session/", "POST"),
      preflight("/api/docs/sign_in/", "POST"),
      preflight("/api/join/", "POST"),
      preflight("/api/org/acme/nodes/register/", "POST"),
      preflight("/api/nothing/", "GET"),
    ]);
    expect(refused.map(({ headers }) => corsOf(headers))).toEqual(refused.map(() => ({})));
    expect(refused.filter(({ status }) => status < 400)).toEqual([]);
  });

  test("a call with a token gets an answer that its page may read, and so does one without or with a wrong one", async () => {
    const calls = {
      200: await server.send("GET", "/api/user/", { token: staff, headers: opaque }),
      403: await server.send("GET", "/api/schema/", { token: member, headers: opaque }),
      401: await server.send("GET", "/api/user/", { headers: opaque }),
    };
    for (const [status, answer] of Object.entries(calls)) {
      expect([answer.status, corsOf(answer.headers)]).toEqual([Number(status), readable]);
      expect(answer.headers.get("vary")).toBe("Origin");
    }
    const wrong = await server.send("GET", "/api/user/", { token: "eyJ.not.jwt", headers: opaque });
    expect([wrong.status, corsOf(wrong.headers)]).toEqual([401, readable]);
  });

  test("no page reads what a cookie gave, what needs no token, or what another origin asked", async () => {
    const { cookie } = await signIn("staff@example.org");
    for (const [path, options] of [
      ["/api/schema/", { headers: { ...opaque, Cookie: cookie } }],
      ["/api/user/", { token: staff, headers: { ...opaque, Cookie: cookie } }],
      ["/healthz", { token: staff, headers: opaque }],
      ["/api/docs/assets/redoc.js", { headers: opaque }],
      ["/api/user/", { token: staff, headers: { Origin: "https://control.example" } }],
      ["/api/user/", { token: staff }],
    ] as const) {
      const { status, headers } = await server.send("GET", path, options);
      expect([path, status, corsOf(headers)]).toEqual([path, 200, {}]);
    }
  });

  test("a browser's session changes nothing", async () => {
    const session = await signInBrowser(server, "staff@example.org");
    const body = { slug: "fromafar", network: "10.90.0.0/16" };
    const refused = await session.send("POST", "/api/org/", { body, headers: opaque });
    expect([refused.status, refused.json, corsOf(refused.headers)]).toEqual([
      403,
      expect.objectContaining({ code: "cross_site" }),
      {},
    ]);
  });

  test("a service token that is bound to networks is refused, also from these networks", async () => {
    const org = await server.organization("bound", "10.91.0.0/16");
    await server.join(org, "staff@example.org", "owner");
    const made = await server.send("POST", "/api/org/bound/service_tokens/", {
      token: staff,
      body: { name: "ci", role: "member", networks: ["192.0.2.0/24"] },
    });
    const { token } = v.parse(v.looseObject({ token: v.string() }), made.json);
    expect((await server.send("GET", "/api/org/bound/nodes/", { token })).status).toBe(200);
    const refused = await server.send("GET", "/api/org/bound/nodes/", { token, headers: opaque });
    expect([refused.status, refused.json]).toEqual([403, expect.objectContaining({ code: "token_scope" })]);
  });
});

describe("the OpenAPI document", () => {
  const Document = v.object({
    openapi: v.literal("3.1.0"),
    paths: v.record(
      v.string(),
      v.record(
        v.string(),
        v.looseObject({ operationId: v.string(), responses: v.record(v.string(), v.unknown()) }),
      ),
    ),
    components: v.looseObject({ schemas: v.record(v.string(), v.unknown()) }),
  });

  test("describes every route under a unique name", async () => {
    const document = v.parse(Document, (await server.send("GET", "/api/schema/", { token: staff })).json);
    const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({ path, method, id: operation.operationId })),
    );
    expect(operations.length).toBe(server.app.routes.length);
    expect(new Set(operations.map((each) => each.id)).size).toBe(operations.length);
    expect(Object.keys(document.paths).every((path) => !path.includes(":"))).toBe(true);
  });

  test("is valid OpenAPI 3.1, and the check finds an invalid document", async () => {
    const rules = {
      struct: "error",
      "no-unresolved-refs": "error",
      "path-parameters-defined": "error",
      "no-identical-paths": "error",
      "operation-operationId-unique": "error",
      "security-defined": "error",
    } as const;
    const config = await createConfig({ rules });
    const problems = async (document: object) =>
      (await lintFromString({ source: JSON.stringify(document), config })).map(({ message }) => message);
    const document = makeOpenApi(server.app.routes, "https://control.example");
    expect(await problems(document)).toEqual([]);
    const wrong = { ...document, info: {}, paths: { "/x/{id}/": { get: { responses: {} } } } };
    expect((await problems(wrong)).length).toBeGreaterThan(2);
  });

  test("has no dangling references", () => {
    const document = makeOpenApi(server.app.routes, "https://control.example");
    const text = JSON.stringify(document);
    const { components } = v.parse(Document, document);
    const missing = [...text.matchAll(/"\$ref":"([^"]+)"/g)].filter(
      ([, reference = ""]) =>
        components.schemas[reference.replace("#/components/schemas/", "")] === undefined,
    );
    expect(missing).toEqual([]);
    expect(text).toContain('"$ref":"#/components/schemas/Organization"');
  });

  test("describes requests as the server validates them", () => {
    const document = makeOpenApi(server.app.routes, "https://control.example");
    expect(document).toMatchObject({
      paths: {
        "/api/org/": {
          post: {
            requestBody: {
              content: {
                "application/json": {
                  schema: { required: ["slug", "network"], additionalProperties: false },
                },
              },
            },
            responses: { 201: {}, 400: {}, 401: {}, 403: {}, 409: {}, 413: {}, 415: {} },
          },
        },
      },
    });
  });
});
