// The whole API against its OpenAPI document: every route, called by every kind of caller, answers as the document and
// the table of rights below say.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { hostTarget } from "../../build.ts";
import { makeOpaqueToken } from "../../src/pki/opaque.ts";
import { networksOfFlag } from "../../src/server/http/edge.ts";
import { eventKinds } from "../../src/api/events.ts";
import type { Organization } from "../../src/api/organizations.ts";
import type { Route } from "../../src/server/http/route.ts";
import type { Access } from "../../src/api/endpoint.ts";
import { createServiceToken } from "../../src/server/users/service-tokens.ts";
import { operator } from "../../src/server/audit/record.ts";
import { recordAllNotes } from "../../src/server/history/record-notes.ts";
import { readDocument, type Conformance } from "../support/conformance.ts";
import { callers, type Example, type Who, type World } from "../support/example-makers.ts";
import { examples } from "../support/examples.ts";
import { registerNode } from "../support/nodes.ts";
import { makeRelease, makeReleaseKey, standIn } from "../support/releases.ts";
import { makeTestServer, type Answer, type TestServer } from "../support/server.ts";
import { temporaryDirectory } from "../support/temporary.ts";

let server: TestServer;
let world: World;
let document: Conformance;
let other: Organization;
const directory = temporaryDirectory();

beforeAll(async () => {
  const releasesDirectory = join(directory.path, "releases");
  const key = makeReleaseKey();
  const executables = { [hostTarget()]: standIn("0.2.0", "exit 0") };
  for (const file of ["apt/InRelease", "rpm/overlay-agent.asc", "rpm/repodata/repomd.xml"])
    await Bun.write(join(releasesDirectory, file), "signed");
  await makeRelease(releasesDirectory, { version: "0.2.0", executables }, key);
  const published = async () => {
    const claimed = await server.db.all("SELECT proof FROM verified_domains");
    return claimed.map(({ proof }) => `overlay-agent-domain=${String(proof)}`);
  };
  server = await makeTestServer({
    releasesDirectory,
    releaseKeys: [key.text],
    webhookNetworks: networksOfFlag("", ["127.0.0.0/8"]),
    network: { lookupTexts: published },
  });
  world = await makeWorld(server);
  const staff = world.token("staff") ?? "";
  document = readDocument((await server.send("GET", "/api/schema/", { token: staff })).json);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  directory[Symbol.dispose]();
});

async function makeWorld(server: TestServer): Promise<World> {
  const acme = await server.organization("acme");
  other = await server.organization("other", "10.78.0.0/16");
  const tokens = new Map<Who, string>();
  for (const role of ["member", "admin", "owner"] as const) {
    tokens.set(role, await server.person(`${role}@example.org`));
    await server.join(acme, `${role}@example.org`, role);
  }
  tokens.set("staff", await server.person("staff@example.org", { isStaff: true }));
  tokens.set("stranger", await server.person("stranger@example.org"));
  await server.join(other, "stranger@example.org", "admin");
  const { services } = server.app;
  const maker = { userId: null, actor: operator };
  const service = await createServiceToken(services, acme, { name: "ci", role: "admin" }, maker);
  tokens.set("service", service.token);
  server.clock.ms -= 3_600_000;
  const row = await server.db.get("SELECT id FROM users WHERE email = 'owner@example.org'");
  tokens.set("expired", (await services.sessions.start(Number(row?.["id"]))).access);
  server.clock.ms += 3_600_000;
  const node = await registerNode(server, acme, "walker");
  tokens.set("node", node.token);
  await furnish(server, other);
  let count = 0;
  return {
    server,
    acme,
    node,
    name: (prefix) => `${prefix}-${++count}`,
    // A new token for each call. Each call has its own address, because wrong guesses are throttled.
    token: (who) => (who === "wrong" ? makeOpaqueToken(services.system.random) : tokens.get(who)),
  };
}

/** Creates one resource of each kind, to detect deletions in the wrong organization. */
async function furnish(server: TestServer, org: Organization): Promise<void> {
  const walker = await registerNode(server, org, "walker");
  const token = await server.person("other-owner@example.org");
  await server.join(org, "other-owner@example.org", "owner");
  const rule = { direction: "inbound", protocol: "udp", ports: "53", peer: { group: "web" } };
  for (const [path, body] of [
    ["groups/", { name: "db" }],
    ["firewall_rules/", { ...rule, target: { any: true } }],
    ["registration_tokens/", {}],
    ["service_tokens/", { name: "ci", role: "member" }],
    ["members/", { email: "invited@example.org" }],
    ["webhooks/", { url: "http://127.0.0.1:9/hook" }],
    ["nodes/", { name: "planned" }],
    ["names/", { name: "files", node: walker.id }],
  ] as const) {
    const answer = await server.send("POST", `/api/org/${org.slug}/${path}`, { token, body });
    expect(`${path} ${answer.status}`).toBe(`${path} 201`);
  }
  await walker.checkin({ paths: { changed: [{ peer: "10.77.0.9", path: "direct", probe: "answers" }] } });
  await server.app.services.pathReports.stop();
}

const inDocument = (path: string) => path.replaceAll(/:([a-z_]+)(\{[^/]*)?/g, "{$1}");
const filled = (route: Route, { id = 987_654, webhook = id, slug = "acme" }: Example) =>
  route.path
    .replace(":slug", slug)
    .replace(/(?<=(?:webhooks|members|users)\/):id\{\S*?\}(?=\/(?:deliveries|sessions)\/:)/, String(webhook))
    .replaceAll(/:[a-z_]+(\{[^/]*)?/g, String(id));

let address = 0;
async function call(route: Route, who: Who, example: Example, raw?: string, type?: string): Promise<Answer> {
  const { on = server, body, query = "", headers = {} } = example;
  const token = headers["Cookie"] === undefined ? (example.token ?? world.token(who)) : undefined;
  const answer = await on.send(route.method, filled(route, example) + query, {
    ...(token === undefined ? {} : { token }),
    ...(raw === undefined ? { body } : { raw }),
    headers: type === undefined ? headers : { ...headers, "Content-Type": type },
    address: `198.51.${(++address >> 8) & 255}.${address & 255}`,
  });
  if (example.on !== undefined) await example.on[Symbol.asyncDispose]();
  return answer;
}

const ranks: Partial<Record<Who, number>> = { member: 1, service: 2, admin: 2, owner: 3, staff: 1 };
const needed: Partial<Record<Access, number>> = { member: 1, own: 1, admin: 2, register: 2, owner: 3 };

/** The table of rights: the status of a refusal, or undefined if the caller has access. */
function refusal({ access, usersOnly, node, path, method, scope }: Route, who: Who): number | undefined {
  if (who === "node") return node === true ? undefined : 403;
  if (access === "public") return undefined;
  if (who === "nobody") return access === "register" ? undefined : 401;
  if (who === "wrong" || who === "expired") return 401;
  if (access === "staff" || access === "docs") return who === "staff" ? undefined : 403;
  if (who === "service" && (usersOnly === true || access === "person")) return 403;
  if (who === "service" && method !== "GET" && scope === undefined) return 403;
  if (!path.startsWith("/api/org/:slug/")) return undefined;
  if (who === "stranger") return 404;
  if (access === "own" && who === "staff") return 403;
  // Staff who are not members may only read.
  return (ranks[who] ?? 0) >= (needed[access] ?? 0) ? undefined : 403;
}

describe("every route", () => {
  test("is documented, and has an example that succeeds", () => {
    const names = server.app.routes.map((route) => route.name);
    expect(document.operationIds.toSorted()).toEqual(names.toSorted());
    expect(names.filter((name) => examples[name] === undefined)).toEqual([]);
  });

  test("is checked strictly: the check finds another key, another status, a missing header", async () => {
    const answer = await server.send("GET", "/api/org/acme/nodes/", { token: world.token("owner") ?? "" });
    const faults = (changed: Partial<Answer>) =>
      document.faults("GET", "/api/org/{slug}/nodes/", { ...answer, ...changed });
    const [node] = v.parse(v.array(v.looseObject({})), answer.json);
    const headers = new Headers(answer.headers);
    headers.delete("X-Total-Count");
    expect(faults({})).toEqual([]);
    expect(faults({ json: [{ ...node, token_hash: "x" }] })).toEqual([
      "body/0 must NOT have additional properties",
    ]);
    expect(faults({ json: [{ ...node, id: "1" }] })).toEqual(["body/0/id must be number"]);
    expect(faults({ status: 202 })).toEqual(["status 202 is not documented"]);
    expect(faults({ headers })).toEqual(["header X-Total-Count is missing"]);
  });

  test.each([...callers])("answers %s as documented and as the table of rights says", async (who) => {
    const wrong: string[] = [];
    for (const route of server.app.routes) {
      const example = (await examples[route.name]?.(world, who)) ?? {};
      const answer = await call(route, who, example);
      const refused = refusal(route, who);
      const wanted = refused === undefined ? Object.keys(route.answers).slice(0, 1) : [String(refused)];
      if (!wanted.includes(String(answer.status))) {
        wrong.push(
          `${route.name}: ${answer.status} instead of ${wanted.join()} ${answer.text.slice(0, 200)}`,
        );
      }
      const faults = document.faults(route.method, inDocument(route.path), answer);
      wrong.push(...faults.map((each) => `${route.name}, ${answer.status}: ${each}`));
      // No answer may contain these.
      if (/PRIVATE KEY|\$argon2|_sealed|token_hash/.test(answer.text)) wrong.push(`${route.name}: a secret`);
    }
    expect(wrong).toEqual([]);
  });

  const json = "application/json";
  test.each([
    ["no JSON", "{", json],
    ["no object", "[]", json],
    ["another type", "{}", "text/plain"],
    ["a form", "a=b", "application/x-www-form-urlencoded"],
    ["over 64 KiB", JSON.stringify({ a: "x".repeat(70_000) }), json],
    ["of unknown keys", JSON.stringify({ is_staff: true, org_id: 1, id: 1, state: "active" }), json],
    ["of nothing but null", JSON.stringify({ name: null, email: null, password: null, role: null }), json],
  ])("answers a body that is %s as documented", async (_, raw, type) => {
    const wrong: string[] = [];
    for (const route of server.app.routes.filter((each) => each.takes.body !== undefined)) {
      const who = route.access === "staff" ? "staff" : "owner";
      const answer = await call(route, who, { id: world.node.id }, raw, type);
      if (answer.status < 400 && route.name !== "nodes_checkin")
        wrong.push(`${route.name}: ${answer.status}`);
      const faults = document.faults(route.method, inDocument(route.path), answer);
      wrong.push(...faults.map((each) => `${route.name}, ${answer.status}: ${each}`));
    }
    expect(wrong).toEqual([]);
  });

  test("answers an unknown method with the error shape", async () => {
    for (const path of new Set(server.app.routes.map((route) => route.path))) {
      const [route] = server.app.routes.filter((each) => each.path === path);
      if (route === undefined) continue;
      const token = world.token(/staff|docs/.test(route.access) ? "staff" : "owner") ?? "";
      const answer = await server.send("PUT", filled(route, { id: world.node.id }), { token });
      const faults = document.faults("PUT", inDocument(path), answer);
      expect([path, answer.status, faults]).toEqual([path, 405, []]);
    }
  });
});

test("requests to one organization change no row of another", async () => {
  // Otherwise the server's loop may do that meanwhile.
  await recordAllNotes(server.app.services);
  const before = await rowsOf(other);
  for (const route of server.app.routes) {
    for (const who of ["owner", "staff"] as const) {
      await call(route, who, (await examples[route.name]?.(world, who)) ?? {});
    }
  }
  expect(await rowsOf(other)).toEqual(before);
});

test("each recorded event is about a subject that its type declares", async () => {
  const recorded = await server.db.all("SELECT DISTINCT type, subject FROM events");
  const pairs = new Set(
    recorded.map((row) => `${String(row["type"])} ${String(row["subject"]).split("/")[0]}`),
  );
  const declared = Object.entries(eventKinds).flatMap(([type, { subjects }]) =>
    subjects.map((subject) => `${type} ${subject}`),
  );
  expect(pairs.size).toBeGreaterThan(40);
  expect([...pairs].filter((pair) => !declared.includes(pair))).toEqual([]);
});

async function rowsOf(org: Organization): Promise<unknown> {
  const tables = [
    "memberships",
    "service_tokens",
    "authorities",
    "nodes",
    "addresses",
    "certificates",
    "registration_tokens",
    "node_groups",
    "firewall_rules",
    "name_aliases",
    "paths",
    "events",
    "webhooks",
  ];
  const rows = await Promise.all(
    tables.map((table) => server.db.all(`SELECT * FROM ${table} WHERE org_id = $1`, [org.id])),
  );
  expect(rows.every((each) => each.length > 0)).toBe(true);
  // How far the server's loop has looked through the events.
  for (const row of rows.flat()) delete row["seen_event_id"];
  return [rows, await server.db.all("SELECT * FROM organizations WHERE id = $1", [org.id])];
}
