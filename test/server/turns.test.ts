// Every request but a check-in begins in a round of the event loop of its own, and some check-ins in each: organizations take
// turns, and so do the callers of one. So no flood of one organization delays a request of another by more than a piece of work or two.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { operator } from "../../src/server/audit/record.ts";
import type { Route } from "../../src/server/http/route.ts";
import { createServiceToken } from "../../src/server/users/service-tokens.ts";
import { makeTestServer, onPostgres, type TestServer } from "../support/server.ts";

let server: TestServer;
let busy: string;
let other: string;

beforeAll(async () => {
  server = await makeTestServer();
  [busy = "", other = ""] = await Promise.all(["busy", "other"].map(tokenOf));
  noteBeginnings();
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
/** So many check-ins begin in a round. Of other requests one does, and those before have begun when it comes. */
const mostBefore = 16;

/** The organizations whose requests began, in this order; of requests without one the caller's address. */
let begun: string[] = [];
/**
 * How many had begun when the single request came to its turn. PostgreSQL answers the checks of rights before it in an order of
 * its own: what begins meanwhile is not before it in the queue.
 */
let cameAt: number | undefined;
function noteBeginnings(): void {
  const { access } = server.app.services;
  const { authorize } = access;
  Object.assign(access, {
    authorize(...of: Parameters<typeof authorize>) {
      const found = authorize(...of);
      const note = () => {
        if (of[0].param("slug") === "other") cameAt ??= begun.length;
      };
      if (found instanceof Promise) void found.then(note, () => undefined);
      else note();
      return found;
    },
  });
  for (const route of server.app.routes) {
    const { answer } = route;
    Object.assign(route, {
      answer(...of: Parameters<Route["answer"]>) {
        const [exchange] = of;
        begun.push(exchange.path.includes("/org/") ? exchange.param("slug") : exchange.address);
        return answer(...of);
      },
    });
  }
}

/** How many of the flood begin before the single request. Undefined where it is refused before its turn. */
async function begunBefore(ask: (from: "busy" | "other") => Promise<unknown>): Promise<number | undefined> {
  // Callers are known from memory afterwards.
  await ask("busy");
  await ask("other");
  begun = [];
  cameAt = undefined;
  await Promise.all(Array.from({ length: flood + 1 }, (_, at) => ask(at < flood ? "busy" : "other")));
  const place = begun.indexOf("other");
  return place < 0 ? undefined : place - (onPostgres ? (cameAt ?? 0) : 0);
}

const methods: readonly Route["method"][] = ["GET", "POST", "PATCH", "DELETE"];
describe.each(methods)("%s", (method) => {
  test("after a flood of one organization, the request of another begins among the first", async () => {
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
      const before = await begunBefore(ask);
      if (before === undefined) {
        // What refuses service tokens does so before their turn.
        expect([path, (await ask("other")).status]).toEqual([path, 403]);
        refused++;
      } else if (before > mostBefore) late.push(`${path}: ${before}`);
    }
    expect(late).toEqual([]);
    expect(refused).toBeLessThan(routes.length);
  });
});

test("a caller without credentials waits behind one request of a network, not behind all of its flood", async () => {
  const ask = (address: string) =>
    server.send("POST", "/api/join/find/", { address, body: { secret: "unknown" } });
  begun = [];
  const [flooding, single] = ["192.0.2.1", "198.51.100.1"];
  await Promise.all(Array.from({ length: flood + 1 }, (_, at) => ask(at < flood ? flooding : single)));
  expect(begun).toHaveLength(flood + 1);
  expect(begun.indexOf(single)).toBeLessThan(flood / 2);
});
