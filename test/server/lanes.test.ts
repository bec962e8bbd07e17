// Check-ins have two lanes: Hono and the listener's own route table. One corpus of requests, most of them refused, must
// get the same answers in both.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { DirectRoute } from "../../src/server/app.ts";
import { revokeNode } from "../../src/server/nodes/lifecycle/revoke.ts";
import { operator } from "../../src/server/audit/record.ts";
import { registerNode, type RegisteredNode } from "../support/nodes.ts";
import { makeTestServer, type TestServer } from "../support/server.ts";

let server: TestServer;
let lane: DirectRoute;
let node: RegisteredNode;
let other: RegisteredNode;
let revoked: RegisteredNode;
let admin: string;
let stranger: string;

beforeAll(async () => {
  server = await makeTestServer();
  const org = await server.organization("acme");
  admin = await server.person("admin@example.org");
  await server.join(org, "admin@example.org", "admin");
  stranger = await server.person("stranger@example.org");
  node = await registerNode(server, org, "a");
  other = await registerNode(server, org, "b");
  revoked = await registerNode(server, org, "c");
  await revokeNode(server.app.services, org, revoked.id, operator);
  const [found] = server.app.direct;
  if (found === undefined) throw new Error("there is no direct lane");
  lane = found;
});
afterAll(() => server[Symbol.asyncDispose]());

const report = { version: "0.1.0", uptime: 1, config_version: 1 };
type Case = {
  status: number;
  token?: string;
  body?: string;
  headers?: Record<string, string>;
  path?: string;
};

const corpus: Record<string, () => Case> = {
  "a report": () => ({ status: 200, token: node.token }),
  "no credentials": () => ({ status: 401 }),
  "another authorization scheme": () => ({ status: 401, headers: { Authorization: "Basic eDp5" } }),
  "a token that was never issued": () => ({ status: 401, token: "x".repeat(43) }),
  "a broken JWT": () => ({ status: 401, token: "eyJhbGciOiJub25lIn0.e30." }),
  "another node's token": () => ({ status: 403, token: other.token }),
  "a revoked node's token": () => ({
    status: 403,
    token: revoked.token,
    path: `/api/org/acme/nodes/${revoked.id}/checkin/`,
  }),
  "an admin": () => ({ status: 200, token: admin }),
  "a user of no organization": () => ({ status: 404, token: stranger }),
  "an organization that does not exist": () => ({
    status: 403,
    token: node.token,
    path: `/api/org/other/nodes/${node.id}/checkin/`,
  }),
  "a node that does not exist": () => ({
    status: 404,
    token: admin,
    path: "/api/org/acme/nodes/999/checkin/",
  }),
  "no body": () => ({ status: 400, token: node.token, body: "" }),
  "invalid JSON": () => ({ status: 400, token: node.token, body: "{" }),
  "an array": () => ({ status: 400, token: node.token, body: "[]" }),
  "wrong types": () => ({ status: 400, token: node.token, body: '{"version":1,"uptime":"x"}' }),
  "a body that is too large": () => ({
    status: 413,
    token: node.token,
    body: `{"version":"${"x".repeat(70_000)}"}`,
  }),
  "a body that is nested too deep": () => ({
    status: 400,
    token: node.token,
    body: `{"a":${"[".repeat(40)}${"]".repeat(40)}}`,
  }),
  "a key that is given twice": () => ({
    status: 400,
    token: node.token,
    body: '{"version":"1","version":"2"}',
  }),
  "another content type": () => ({
    status: 415,
    token: node.token,
    headers: { "Content-Type": "text/plain" },
  }),
  "invalid UTF-8": () => ({ status: 400, token: node.token, body: '{"version":"\ufffd"}' }),
};

function requestOf({ token, body = JSON.stringify(report), headers = {}, path }: Case): Request {
  return new Request(`https://control.example${path ?? `/api/org/acme/nodes/${node.id}/checkin/`}`, {
    method: "POST",
    headers: {
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      "Content-Type": "application/json",
      ...headers,
    },
    body,
  });
}

/** Wrong guesses are throttled by address, so each case has its own. */
const edgeOf = (address: number) => ({ addressOf: () => `192.0.2.${address}` });

async function shown(response: Response) {
  const headers = Object.fromEntries(response.headers);
  // A refused check-in is not logged, and has no id, in either lane.
  return { status: response.status, headers, text: await response.text() };
}

function paramsOf(request: Request): Record<string, string> {
  const [, slug = "", id = ""] = /\/org\/([^/]*)\/nodes\/([^/]*)\//.exec(new URL(request.url).pathname) ?? [];
  return { slug: decodeURIComponent(slug), id: decodeURIComponent(id) };
}

describe("both lanes give the same answer", () => {
  for (const [at, [what, make]] of Object.entries(corpus).entries()) {
    test(what, async () => {
      const direct = requestOf(make());
      const answer = await lane.answer(direct, edgeOf(at), paramsOf(direct));
      if (answer === undefined) throw new Error("the direct lane refused a plain path");
      const byHono = await shown(await server.app.fetch(requestOf(make()), edgeOf(at)));
      const byLane = await shown(answer);
      expect(byLane).toEqual(byHono);
      expect(byLane.status).toBe(make().status);
    });
  }

  test("both lanes share the count of guesses", async () => {
    const edge = edgeOf(200);
    const guess = () => requestOf({ status: 401, token: "y".repeat(43) });
    const direct = async () => {
      const request = guess();
      return (await lane.answer(request, edge, paramsOf(request)))?.status;
    };
    const byHono = async () => (await server.app.fetch(guess(), edge)).status;
    for (let at = 0; at < 5; at++) expect([await direct(), await byHono()]).toEqual([401, 401]);
    expect([await direct(), await byHono()]).toEqual([429, 429]);
  });
});

describe("Hono answers a path that is not plain", () => {
  const id = () => String(node.id);
  const paths: Record<string, () => string> = {
    "a second slash": () => `//api/org/acme/nodes/${id()}/checkin/`,
    "an encoded letter": () => `/api/org/%61cme/nodes/${id()}/checkin/`,
    "an encoded slash": () => `/api/org/a%2Fcme/nodes/${id()}/checkin/`,
    "a query": () => `/api/org/acme/nodes/${id()}/checkin/?x=1`,
    "an id that is not a number": () => "/api/org/acme/nodes/seven/checkin/",
    "an id that is too long": () => `/api/org/acme/nodes/${"1".repeat(16)}/checkin/`,
    "a slug in capitals": () => `/api/org/ACME/nodes/${id()}/checkin/`,
  };
  for (const [what, path] of Object.entries(paths)) {
    test(what, () => {
      const request = requestOf({ status: 404, token: node.token, path: path() });
      expect(lane.answer(request, edgeOf(201), paramsOf(request))).toBeUndefined();
    });
  }
});
