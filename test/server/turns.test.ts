// Every request but a check-in begins in a round of the event loop of its own, and some check-ins in each: organizations take
// turns, and so do the callers of one. So no flood of one organization delays a request of another by more than a piece of work or two.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { operator } from "../../src/server/audit/record.ts";
import type { Route } from "../../src/server/http/route.ts";
import { createServiceToken } from "../../src/server/users/service-tokens.ts";
import { makeTestServer, type TestServer } from "../support/server.ts";

let server: TestServer;
let busy: string;
let other: string;

beforeAll(async () => {
  server = await makeTestServer();
  [busy = "", other = ""] = await Promise.all(["busy", "other"].map(tokenOf));
});
afterAll(() => server[Symbol.asyncDispose]());

/** A service token: it is recognized at once, while a user's token is verified in another thread. */
async function tokenOf(slug: string): Promise<string> {
  const { app } = server;
  const maker = { userId: null, actor: operator };
  const org = await server.organization(slug);
  return (await createServiceToken(app.services, org, { name: "ci", role: "admin" }, maker)).token;
}

const flood = 60;
/** Of the flood, at most so many before. PostgreSQL answers several requests at the same time, in an order of its own. */
const mostBefore = process.env["TEST_POSTGRES"] === undefined ? flood / 2 : flood - 2;

/** How many of the flood are answered before the single request. */
async function answeredBefore(ask: (from: "busy" | "other") => Promise<unknown>): Promise<number> {
  // Callers are known from memory afterwards.
  await ask("busy");
  await ask("other");
  let answered = 0;
  const all = Array.from({ length: flood }, () => ask("busy").then(() => void answered++));
  const place = ask("other").then(() => answered);
  await Promise.all(all);
  return place;
}

const methods: readonly Route["method"][] = ["GET", "POST", "PATCH", "DELETE"];
describe.each(methods)("%s", (method) => {
  test("after a flood of one organization, the request of another is answered among the first", async () => {
    const routes = server.app.routes.filter(
      (route) => route.method === method && route.path.includes("/:slug/"),
    );
    let refused = 0;
    expect(routes).not.toBeEmpty();
    const late: string[] = [];
    for (const { path } of routes) {
      // An endless answer.
      if (path.endsWith("/stream/")) continue;
      const numbered = path.replaceAll(/:(?!slug)[a-z_]+(\{.*?\})?(?=\/)/g, "999999");
      const ask = (from: "busy" | "other") =>
        server.send(method, numbered.replace(":slug", from), {
          token: from === "busy" ? busy : other,
          // The listener says how long a body is.
          ...(method === "GET" ? {} : { body: {}, headers: { "Content-Length": "2" } }),
        });
      // What refuses service tokens does so before their turn.
      if ((await ask("other")).status === 403) {
        refused++;
        continue;
      }
      const before = await answeredBefore(ask);
      // Work that takes several rounds lets others begin meanwhile.
      if (before > mostBefore) late.push(`${path}: ${before}`);
    }
    expect(late).toEqual([]);
    expect(refused).toBeLessThan(routes.length);
  });
});

test("a caller without credentials waits behind one request of a network, not behind all of its flood", async () => {
  const before = await answeredBefore((from) =>
    server.send("POST", "/api/join/find/", {
      address: from === "busy" ? "192.0.2.1" : "198.51.100.1",
      body: { secret: "unknown" },
    }),
  );
  expect(before).toBeLessThan(flood / 2);
});
