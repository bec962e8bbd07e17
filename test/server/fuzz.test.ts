// Random requests get a documented refusal or a success, never a failure of the server.

import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { registerNode, type RegisteredNode } from "../support/nodes.ts";
import { makeTestServer, onPostgres, type TestServer } from "../support/server.ts";

let server: TestServer;
let node: RegisteredNode;
const tokens = { owner: "", staff: "" };
beforeAll(async () => {
  server = await makeTestServer();
  const acme = await server.organization("acme");
  tokens.owner = await server.person("owner@example.org");
  await server.join(acme, "owner@example.org", "owner");
  tokens.staff = await server.person("staff@example.org", { isStaff: true });
  node = await registerNode(server, acme, "walker");
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
});

// Strings that have broken parsers, paths, queries and configurations of other programs.
const hostile = [
  "../../../tmp/x",
  "/etc/passwd",
  "a\nb: c",
  "'; DROP TABLE nodes; --",
  "%00",
  "\0",
  "${x}",
  "any",
  "0.0.0.0/0",
  "::/0",
  "10.77.0.1",
  "-1",
  "1e999",
  "__proto__",
  "-----BEGIN CERTIFICATE-----",
  "\u202e",
  "x".repeat(5000),
];
const value = fc.oneof(
  fc.constantFrom(...hostile),
  fc.string(),
  fc.constantFrom(0, -1, 1.5, 1e308, 2 ** 53, true, false, null),
  fc.jsonValue({ maxDepth: 3 }),
);

/** The keys in the route's schema, at any depth. */
function keysOf(schema: unknown): string[] {
  if (typeof schema !== "object" || schema === null) return [];
  if ("entries" in schema && typeof schema.entries === "object") return Object.keys(schema.entries ?? {});
  if ("pipe" in schema && Array.isArray(schema.pipe)) return keysOf(schema.pipe[0]);
  return "wrapped" in schema ? keysOf(schema.wrapped) : [];
}

test("bodies with known keys and random values", async () => {
  const routes = server.app.routes.filter((route) => route.takes.body !== undefined);
  expect(routes.length).toBeGreaterThan(15);
  // Wrong guesses are throttled by address.
  let count = 0;
  for (const route of routes) {
    // The callers have no second factor: an organization that needs one refuses all that follows.
    const keys = [...keysOf(route.takes.body), "__proto__"].filter((key) => key !== "second_factor_required");
    const path = route.path.replace(":slug", "acme").replaceAll(/:[a-z_]+(\{[^/]*)?/g, String(node.id));
    const token = route.access === "staff" ? tokens.staff : tokens.owner;
    // Hashing a password is slow, so these routes get fewer runs. On PostgreSQL the statements count, not the parsing.
    const numRuns = route.access === "public" || route.access === "person" ? 10 : onPostgres ? 30 : 150;
    await fc.assert(
      fc.asyncProperty(fc.dictionary(fc.constantFrom(...keys), value), async (body) => {
        const address = `198.51.${(++count >> 8) & 255}.${count & 255}`;
        const answer = await server.send(route.method, path, { token, body, address });
        expect(`${route.name} ${answer.status} ${answer.status < 500 ? "" : answer.text}`).toBe(
          `${route.name} ${answer.status} `,
        );
      }),
      { numRuns, seed: 20_261 },
    );
  }
  expect(server.log.filter((line) => line.includes("Request failed"))).toEqual([]);
}, 120_000);

test("random paths and queries", async () => {
  await fc.assert(
    fc.asyncProperty(fc.oneof(fc.constantFrom(...hostile), fc.string()), async (text) => {
      const word = encodeURIComponent(text.toWellFormed());
      for (const path of [
        `/api/org/${word}/`,
        `/api/org/acme/groups/${word}/`,
        `/api/org/acme/nodes/${word}/`,
        `/api/org/acme/nodes/?search=${word}`,
        `/api/org/acme/nodes/?page=${word}&page_size=${word}`,
        `/api/org/?${word}=${word}`,
        `/api/docs/assets/${word}`,
      ]) {
        const { status } = await server.send("GET", path, { token: tokens.owner });
        expect(`${path} ${status < 500}`).toBe(`${path} true`);
      }
    }),
    { numRuns: onPostgres ? 50 : 200, seed: 20_262 },
  );
});

test("a name that is a file path is refused without a hint about the file system", async () => {
  const body = { name: "../../../tmp/x", ...node.keys };
  for (const path of ["nodes/", "nodes/register/"]) {
    const answer = await server.send("POST", `/api/org/acme/${path}`, {
      token: tokens.owner,
      body: path === "nodes/" ? { name: body.name } : body,
    });
    expect([answer.status, Object.keys(Object(Object(answer.json).errors))]).toEqual([400, ["name"]]);
    expect(answer.text).not.toMatch(/tmp|nebula|-cert|\/src\//);
  }
});
