// Names that every object inherits are names like any other, wherever people choose names.

import { afterEach, beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import type { Organization } from "../../src/api/organizations.ts";
import { signInBrowser } from "../support/browser-session.ts";
import { registerNode } from "../support/nodes.ts";
import { makeTestServer, type TestServer } from "../support/server.ts";

let server: TestServer;
let owner: string;
let org: Organization;
const api = "/api/org/constructor/";
const send = async (method: string, path: string, body?: unknown) => {
  const { status, json } = await server.send(method, api + path, { token: owner, body });
  expect([path, status, json]).toEqual([path, status < 300 ? status : "done", json]);
  return json;
};

beforeEach(async () => {
  server = await makeTestServer();
  org = await server.organization("constructor");
  owner = await server.person("owner@example.org");
  await server.join(org, "owner@example.org", "owner");
});
afterEach(() => server[Symbol.asyncDispose]());

test("a group, a node and an alias with such a name pass through a policy file", async () => {
  const node = await registerNode(server, org, "constructor");
  for (const name of ["constructor", "prototype"]) await send("POST", "groups/", { name });
  await send("PATCH", `nodes/${node.id}/`, { groups: ["constructor"] });
  await send("POST", "names/", { name: "valueof", node: node.id });
  const side = { group: "constructor" };
  await send("POST", "firewall_rules/", {
    direction: "inbound",
    protocol: "tcp",
    ports: "80",
    peer: side,
    target: side,
  });
  const { policy } = v.parse(v.object({ policy: v.string() }), await send("GET", "policy/"));
  expect(await send("POST", "policy/plan/", { policy })).toMatchObject({
    rules: { create: [], delete: [] },
    groups: { create: [], delete: [], members: [] },
    aliases: { create: [], delete: [] },
  });
  const renamed = policy.replace("  prototype: {}", "  prototype:\n    description: Named");
  await send("POST", "policy/apply/", { policy: renamed });
  expect(await send("GET", "groups/prototype/")).toMatchObject({ description: "Named" });
});

test("the console's page of an address with such a name answers", async () => {
  const browser = await signInBrowser(server, "owner@example.org");
  for (const path of ["/console/constructor/constructor/", "/console/constructor/valueof/"]) {
    const answer = await browser.send("GET", path);
    expect([path, answer.status]).toEqual([path, 200]);
  }
});
