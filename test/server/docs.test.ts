import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { hash } from "node:crypto";
import { createConfig, lintFromString } from "@redocly/openapi-core";
import * as v from "valibot";
import { makeOpenApi } from "../../src/server/docs/openapi.ts";
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
const pages = ["/api/docs/", "/api/redoc/", "/api/schema/", "/api/docs/assets/redoc.js"];
const signIn = async (email: string) => {
  const answer = await server.send("POST", "/api/docs/sign_in/", { body: { email, password } });
  const [set = ""] = answer.headers.getSetCookie();
  return { status: answer.status, set, cookie: set.split(";")[0] ?? "" };
};

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
    for (const path of ["/api/docs/", "/api/redoc/"]) {
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
