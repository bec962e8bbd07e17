// Policy as code over the API: show, plan, test, apply, confirm, take back.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { ErrorBody } from "../../../src/protocol/error-body.ts";
import { Plan, Policy } from "../../../src/server/policy-files/answers.ts";
import { checkPolicies, revertUnconfirmed } from "../../../src/server/policy-files/upkeep.ts";
import type { Organization } from "../../../src/server/policy/organizations.ts";
import { downloadOf, registerNode, registrationToken, type RegisteredNode } from "../../support/nodes.ts";
import { makeTestServer, type Answer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;
let web: RegisteredNode;
let db: RegisteredNode;

beforeAll(async () => {
  server = await makeTestServer({ accessLifetimeS: 1_000_000 });
  admin = await server.person("admin@example.org");
});
afterAll(() => server[Symbol.asyncDispose]());

let count = 0;
beforeEach(async () => {
  count++;
  org = await server.organization(`acme-${count}`, `10.${count}.0.0/16`);
  await server.join(org, "admin@example.org", "admin");
  web = await registerNode(server, org, "web1");
  const registration_token = await registrationToken(server, org, { groups: ["db"] });
  db = await registerNode(server, org, "db1", { registration_token });
});

const api = (method: string, path: string, body?: unknown): Promise<Answer> =>
  server.send(method, `/api/org/${org.slug}/${path}`, {
    token: admin,
    ...(body === undefined ? {} : { body }),
  });
const good = async <T>(schema: v.GenericSchema<unknown, T>, answer: Promise<Answer>): Promise<T> => {
  const { status, text, json } = await answer;
  expect(`${status} ${status === 200 ? "" : text}`).toBe("200 ");
  return v.parse(schema, json);
};
const show = () => good(Policy, api("GET", "policy/"));
const plan = (policy: string, prune = true) => good(Plan, api("POST", "policy/plan/", { policy, prune }));
const apply = (policy: string, more: object = {}) =>
  api("POST", "policy/apply/", { policy, prune: true, ...more });
const applied = (policy: string, more: object = {}) => good(Plan, apply(policy, more));
const failure = async (answer: Promise<Answer>) => {
  const { json } = await answer;
  const { code, detail, errors } = v.parse(v.looseObject(ErrorBody.entries), json);
  return { code, detail, errors };
};
const Events = v.array(v.looseObject({ type: v.string(), after: v.any() }));
const events = async (type: string) =>
  v.parse(Events, (await api("GET", "events/?limit=500")).json).filter((event) => event.type === type);
const Rules = v.array(v.looseObject({ id: v.number(), ports: v.string() }));
const services = () => server.app.services;
const base = `# The network of acme.
groups:
  web:
    description: web servers
    members: [node:web1]
  db: {}
rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: icmp, peer: any, target: any}
  - protocol: tcp
    ports: 5432
    peer: group:web
    target: group:db
    description: the application
tests:
  - accept: {from: group:web, to: group:db, protocol: tcp, port: 5432}
  - deny: {from: group:db, to: group:web, protocol: tcp}
`;

describe("apply", () => {
  test("makes the state as the file says, and get answers the file as it was written", async () => {
    const first = await plan(base);
    expect(first.rules.create).toHaveLength(1);
    expect(first.groups.create).toEqual(["web"]);
    expect(first.nodes).toEqual([
      {
        id: web.id,
        name: "web1",
        groups: { add: ["web"], remove: [] },
        routes: { add: [], remove: [] },
        relay: null,
      },
    ]);
    expect(first.access).toMatchObject({
      pairs_changed: 1,
      pairs: [{ from: { name: "web1" }, to: { name: "db1" }, gains: ["tcp/5432"], loses: [] }],
    });
    await applied(base, { version: first.version });
    expect(await show()).toMatchObject({
      version: first.version + 1,
      source: "file",
      policy: base,
      applied_by: "admin@example.org",
      drifted_since: null,
      tests: { count: 2, failing: [] },
    });
    const verdict = { from: web.id, to: db.id, protocol: "tcp", port: 5432 };
    const permitted = ["icmp", "tcp/5432"];
    const answer = { allowed: true, permitted };
    expect((await api("POST", "firewall_rules/test/", verdict)).json).toMatchObject(answer);
    // Without a port: what passes between the two.
    const portless = { ...verdict, port: undefined };
    expect((await api("POST", "firewall_rules/test/", portless)).json).toMatchObject({ permitted });
    expect((await plan(base)).is_empty).toBe(true);
    expect((await events("policy.applied"))[0]?.after).toMatchObject({
      counts: { rules_created: 1, rules_deleted: 0, nodes: 1 },
    });
  });

  test("gives nodes that are not concerned nothing to download", async () => {
    await applied(base);
    const [ofWeb, ofDb] = [downloadOf(await web.download()).etag, downloadOf(await db.download()).etag];
    await applied(base.replace("ports: 5432", "ports: 5432-5433"));
    expect((await web.download(ofWeb)).status).toBe(304);
    expect((await db.download(ofDb)).status).toBe(200);
  });

  test("of two editors at once who planned on one version, one succeeds", async () => {
    const { version } = await plan(base);
    const answers = await Promise.all(["one", "two"].map((word) => apply(`${base}# ${word}\n`, { version })));
    expect(answers.map(({ status }) => status).sort((a, b) => a - b)).toEqual([200, 409]);
  });

  test("records one event with the difference", async () => {
    const last = (await api("GET", "events/?limit=500")).json;
    const before = v.parse(Events, last).length;
    await applied(base);
    const after = v.parse(Events, (await api("GET", "events/?limit=500")).json).slice(before);
    expect(after.map(({ type }) => type)).toEqual(["policy.applied"]);
  });

  test("the event names each rule that it made, described or removed by its number, also when it is taken back", async () => {
    const numbers = async () => {
      const list = v.parse(Rules, (await api("GET", "firewall_rules/")).json);
      return list.find(({ ports }) => ports !== "any")?.id;
    };
    const last = async (type: string) => (await events(type)).at(-1)?.after;
    await applied(base);
    const made = await numbers();
    expect(await last("policy.applied")).toMatchObject({ rule_ids: [made], rules_created: [{ id: made }] });
    await applied(base.replace("the application", "the shop"));
    expect(await last("policy.applied")).toMatchObject({
      rule_ids: [made],
      rules_described: [{ id: made, before: "the application", description: "the shop" }],
    });
    await applied(base.replace("ports: 5432", "ports: 5432-5433"), { confirm: 60 });
    const replaced = await numbers();
    expect(await last("policy.applied")).toMatchObject({ rule_ids: [replaced, made] });
    await api("POST", "policy/revert/", {});
    expect(await last("policy.reverted")).toMatchObject({ rule_ids: [made, replaced] });
  });

  test("keeps the id of a rule whose description alone changes", async () => {
    await applied(base);
    const change = await applied(base.replace("the application", "the shop"));
    expect(change.rules).toMatchObject({ create: [], delete: [], describe: [{ description: "the shop" }] });
  });

  test("is refused when it was planned on another version, and names both", async () => {
    const { version } = await plan(base);
    await api("POST", "groups/", { name: "other" });
    const refused = await failure(apply(base, { version }));
    expect(refused.code).toBe("policy_changed");
    expect(refused.detail).toContain(`version ${version} and is at version ${version + 1}`);
  });

  test("is refused when a test fails, and changes nothing", async () => {
    const before = await show();
    const refused = await failure(apply(base.replace("ports: 5432", "ports: 5433")));
    expect(refused.code).toBe("policy_test_failed");
    expect(refused.detail).toContain("tcp/5432 from web1 to db1 is refused");
    expect(await show()).toEqual(before);
  });

  test("without prune leaves what the file does not name, and says so", async () => {
    await applied(base);
    const smaller = base.replace(/ {2}- protocol: tcp[^]*the application\n/, "").replace(/tests:[^]*/, "");
    const kept = await plan(smaller, false);
    expect(kept.is_empty).toBe(true);
    expect(kept.kept.join()).toContain("is not in the file. It stays without --prune.");
    expect((await plan(smaller)).rules.delete).toMatchObject([{ ports: "5432" }]);
  });

  test("with prune removes memberships made by hand, never those from a registration token", async () => {
    await applied(base);
    const empty = base.replace("members: [node:web1]", "members: []").replace("db: {}", "db: {members: []}");
    const change = await plan(empty.replace(/tests:[^]*/, ""));
    expect(change.nodes.map(({ name, groups }) => [name, groups.remove])).toEqual([["web1", ["web"]]]);
    expect(change.access.pairs).toMatchObject([{ loses: ["tcp/5432"] }]);
  });

  test("says what keeps a group that the file does not name", async () => {
    await applied(base);
    await registrationToken(server, org, { groups: ["guests"], node_name: "later" });
    expect((await plan("groups: {}\n")).kept.toSorted()).toEqual([
      "The group db is not in the file. It stays while node db1 is in it.",
      "The group guests is not in the file. It stays while an open registration token gives it.",
      "The group web is not in the file. It stays while node web1 is in it.",
    ]);
    expect(
      (await plan("groups: {db: {}, guests: {}, web: {members: []}}\nrules: []\ntests: []\n")).kept,
    ).toEqual([]);
  });

  test("moves a route from one node to another, and makes relays", async () => {
    const route = (name: string) =>
      `routes: [{network: 192.168.5.0/24, via: node:${name}}]\nrelays: [node:${name}]\n`;
    await applied(route("web1"));
    const change = await applied(route("db1"));
    expect(change.nodes.map(({ name, routes, relay }) => [name, routes.add, routes.remove, relay])).toEqual([
      ["web1", [], ["192.168.5.0/24"], false],
      ["db1", ["192.168.5.0/24"], [], true],
    ]);
    expect((await api("GET", `nodes/${db.id}/`)).json).toMatchObject({
      subnets: ["192.168.5.0/24"],
      is_relay: true,
    });
  });

  test("makes, moves and removes aliases; taking it back restores them", async () => {
    const names = async () =>
      v
        .parse(
          v.array(v.looseObject({ name: v.string(), node: v.number() })),
          (await api("GET", "names/")).json,
        )
        .map(({ name, node }) => `${name} ${node}`);
    const route = "routes: [{network: 192.168.5.0/24, via: node:web1}]\n";
    const file = `${route}aliases: [{name: nas, node: node:web1, address: 192.168.5.9}, {name: store, node: node:db1}]\n`;
    await applied(file);
    expect(await names()).toEqual([`nas ${web.id}`, `store ${db.id}`]);
    expect(await show()).toMatchObject({ source: "file", policy: file });
    const moved = await applied(`${route}aliases: [{name: store, node: node:web1}]\n`, { confirm: 60 });
    expect(moved.aliases).toEqual({ create: ["store"], delete: ["store", "nas"] });
    expect(await names()).toEqual([`store ${web.id}`]);
    expect((await api("POST", "names/", { name: "other", node: db.id })).status).toBe(409);
    await api("POST", "policy/revert/");
    expect((await names()).sort()).toEqual([`nas ${web.id}`, `store ${db.id}`]);
    expect((await plan((await show()).policy)).is_empty).toBe(true);
    expect((await failure(apply("aliases: [{name: web1, node: node:db1}]"))).code).toBe("name_taken");
  });

  test("shows a node that was replaced by one of the same name", async () => {
    const file = base.replace("target: group:db", "target: node:db1").replace(/tests:[^]*/, "");
    await applied(file);
    await api("DELETE", `nodes/${db.id}/`);
    const registration_token = await registrationToken(server, org, { node_name: "db1" });
    const again = await registerNode(server, org, "db1", { registration_token });
    const { rules } = await plan(file);
    expect(rules.create).toMatchObject([{ target: "node:db1" }]);
    expect(rules.delete).toMatchObject([{ target: `node:db1 (deleted, id ${db.id})` }]);
    expect(again.id).not.toBe(db.id);
  });
});

test.each([
  ["groups: {web: {}}\ngroups: {}", "Line 2, column 1: The key groups is here twice."],
  [
    "rules:\n  - peer: group:wbe\n    target: any\n",
    "Line 2, column 5: rules.0.peer: There is no group wbe.",
  ],
  ["rules:\n  - peer: node:nas\n    target: any\n", "Line 2, column 5: rules.0.peer: There is no node nas."],
  ["rules:\n  - peer: user:anna\n    target: any\n", "Enter a member as user:EMAIL"],
  ["rules:\n  - peer: any\n    target: self\n", "self is a peer only"],
  ["aliases:\n  - {name: nas, node: node:nas}\n", "Line 2, column 17: aliases.0.node: There is no node nas."],
  ["aliases:\n  - {name: 9nas, node: node:db1}\n", "An alias begins with a letter"],
  ["aliases:\n  - {name: nas, node: node:db1, address: here}\n", "Enter an IP address."],
  ["users: {}\n", "Users are not supported yet."],
  [
    "rules:\n  - {peer: any, target: any, port: 22}\n",
    "Line 2, column 30: rules.0.port: This key is unknown.",
  ],
  ["rules:\n  - {peer: any, target: any, ports: 0}\n", "Enter ports from 1 to 65535."],
  ["rules:\n  - {peer: 10.0.0.1/8, target: any}\n", "host bits zero"],
  ["rules:\n  - target: any\n", "rules.0.peer: This key is required."],
  [
    "rules:\n  - {peer: any, target: any}\n  - {peer: any, target: any}\n",
    "This is rule 1 of the file again.",
  ],
  ["groups: {web: {}}\nrules:\n  - {peer: group:we, target: any}\n", "There is no group we in this file"],
  ["tests:\n  - {}\n", "Expected accept or deny."],
  ["", "The policy is empty."],
  ["rules: [", "Line 1, column"],
  ["rules: *x", "YAML aliases are not supported"],
])("%j is refused with a sentence", async (policy, sentence) => {
  const refused = await failure(api("POST", "policy/plan/", { policy }));
  expect(refused.code).toBe("validation_failed");
  expect(refused.detail).toContain(sentence);
});

describe("tests of the policy", () => {
  const rule = (change: object) => ({
    direction: "inbound",
    protocol: "tcp",
    ports: "22",
    peer: { group: "db" },
    target: { group: "web" },
    ...change,
  });

  test("stop a rule, a change of a rule, a deletion and a membership that would break them", async () => {
    await applied(base.replace("from: group:web", "from: node:web1"));
    expect(await failure(api("POST", "firewall_rules/", rule({})))).toMatchObject({
      code: "policy_test_failed",
      detail: expect.stringContaining("tcp/22 from db1 to web1 is permitted"),
    });
    const { json } = await api("GET", "firewall_rules/?search=application");
    const [{ id } = { id: 0 }] = v.parse(v.array(v.looseObject({ id: v.number() })), json);
    expect((await failure(api("DELETE", `firewall_rules/${id}/`))).code).toBe("policy_test_failed");
    expect((await failure(api("PATCH", `firewall_rules/${id}/`, { ports: "80" }))).code).toBe(
      "policy_test_failed",
    );
    expect((await api("PATCH", `firewall_rules/${id}/`, { description: "other" })).status).toBe(200);
    expect((await api("PATCH", `nodes/${web.id}/`, { groups: ["spare"] })).status).toBe(409);
    expect((await api("PATCH", `nodes/${db.id}/`, { groups: ["db", "spare"] })).status).toBe(200);
  });

  test("never stop a revocation: it becomes an event, and other edits go on", async () => {
    await applied(base.replace("to: group:db", "to: node:db1"));
    await checkPolicies(services());
    expect((await api("DELETE", `nodes/${db.id}/`)).status).toBe(204);
    await checkPolicies(services());
    expect((await events("policy.test_failed"))[0]?.after.failing[0]).toContain("is gone");
    await checkPolicies(services());
    expect(await events("policy.test_failed")).toHaveLength(1);
    const other = { peer: { group: "web" }, target: { group: "web" } };
    expect((await api("POST", "firewall_rules/", rule(other))).status).toBe(201);
    expect((await show()).tests.failing).toHaveLength(1);
  });

  test("run for a group before its first node joins", async () => {
    const file = base.replace("members: [node:web1]", "members: []");
    await applied(file);
    const refused = await failure(apply(file.replace("ports: 5432", "ports: 80")));
    expect(refused.detail).toContain("tcp/5432 from a node of group web to db1 is refused");
  });

  test("run on request, for a file or for the state", async () => {
    await applied(base);
    expect((await api("POST", "policy/test/", {})).json).toEqual({ count: 2, failing: [] });
    const policy = base.replace("ports: 5432", "ports: 80");
    const result = (await api("POST", "policy/test/", { policy, prune: true })).json;
    expect(result).toMatchObject({ count: 2, failing: [expect.stringContaining("Test 1")] });
  });
});

describe("an edit of the rules by hand, as the console sends it", () => {
  const rules = JSON.stringify({ rules: [{ protocol: "tcp", ports: 22, peer: "any", target: "group:db" }] });

  test("keeps the file, says that the state differs, and runs the tests", async () => {
    await applied(base);
    const { version } = await show();
    const answer = await failure(apply(rules, { keep_file: true, version }));
    expect(answer.code).toBe("policy_test_failed");
    const permitted = base.slice(base.indexOf("rules:"), base.indexOf("tests:")).replace("5432", "5000-6000");
    await applied(permitted, { keep_file: true, version });
    const after = await show();
    expect(after).toMatchObject({ version: version + 1, source: "state", drifted_since: expect.any(String) });
    expect(after.policy).toContain("5000-6000");
    expect(after.policy).toContain("members:");
    await applied(base);
    expect(await show()).toMatchObject({ source: "file", policy: base, drifted_since: null });
  });

  test("makes no file where there is none", async () => {
    await applied(rules, { keep_file: true });
    expect(await show()).toMatchObject({ source: "state", applied_by: null, drifted_since: null });
  });

  test("is refused with a deadline, on another version, and where only the file changes the policy", async () => {
    expect((await failure(apply(rules, { keep_file: true, confirm: 60 }))).errors).toHaveProperty("confirm");
    await applied(base);
    const stale = { keep_file: true, version: 0 };
    expect((await failure(apply(rules, stale))).code).toBe("policy_changed");
    await api("PATCH", "policy/", { by_file: true });
    expect((await failure(apply(rules, { keep_file: true }))).code).toBe("policy_by_file");
    await applied(base);
  });
});

describe("an unconfirmed policy", () => {
  const open = base.replace("target: group:db", "target: any");

  test("goes back when its time is over, also what it deleted, and no revocation", async () => {
    await applied(base);
    const before = await show();
    await applied(open.replace("ports: 5432", "ports: 5432-5433"), { confirm: 600 });
    await revertUnconfirmed(services());
    expect((await show()).unconfirmed).toMatchObject({ by: "admin@example.org" });
    await api("DELETE", `nodes/${web.id}/`);
    server.clock.ms += 600_000;
    await revertUnconfirmed(services());
    const after = await show();
    expect(after).toMatchObject({ unconfirmed: null, applied_at: before.applied_at });
    expect((await api("GET", `nodes/${web.id}/`)).json).toMatchObject({ state: "revoked" });
    const rules = (await api("GET", "firewall_rules/")).json;
    expect(rules).toMatchObject([{}, {}, { ports: "5432", target: { group: "db" } }]);
    expect(await events("policy.reverted")).toHaveLength(1);
    const late = await failure(api("POST", "policy/confirm/"));
    expect(late.detail).toMatch(/^No policy waits for its confirmation: the last one was taken back at 20/);
  });

  test("refuses other changes with its author's name, and stays once confirmed", async () => {
    await applied(base, { confirm: 600 });
    for (const answer of [
      api("POST", "groups/", { name: "other" }),
      api("PATCH", `nodes/${web.id}/`, { groups: [] }),
      apply(open),
    ]) {
      const refused = await failure(answer);
      expect(refused.code).toBe("policy_unconfirmed");
      expect(refused.detail).toStartWith("A policy that admin@example.org has applied goes back at ");
    }
    expect((await api("POST", "policy/confirm/")).status).toBe(200);
    server.clock.ms += 700_000;
    await revertUnconfirmed(services());
    expect(await show()).toMatchObject({ source: "file", policy: base, unconfirmed: null });
    expect((await api("POST", "policy/confirm/")).status).toBe(409);
  });

  test("is taken back at once on request, memberships and groups included", async () => {
    const before = await show();
    await applied(base, { confirm: 600 });
    expect((await api("POST", "policy/revert/")).status).toBe(200);
    const after = await show();
    expect(after.policy).toBe(before.policy);
    expect(after.tests.count).toBe(0);
  });
});

test("an edit by hand is drift: get renders the state, which applies without a change", async () => {
  await applied(base);
  server.clock.ms += 5000;
  await api("POST", "groups/", { name: "other" });
  const drifted = await show();
  expect(drifted).toMatchObject({
    source: "state",
    drifted_since: new Date(server.clock.ms).toISOString().replace(".000", ""),
  });
  expect((await plan(drifted.policy)).is_empty).toBe(true);
  await api("DELETE", "groups/other/");
  expect(await show()).toMatchObject({ source: "file", drifted_since: null });
});

test("an organization that is changed by its file only refuses rules, groups and memberships", async () => {
  expect((await api("PATCH", "policy/", { by_file: true })).status).toBe(204);
  for (const answer of [
    api("POST", "groups/", { name: "other" }),
    api("PATCH", `nodes/${web.id}/`, { groups: [] }),
  ])
    expect((await failure(answer)).code).toBe("policy_by_file");
  await applied(base);
  expect((await show()).by_file).toBe(true);
  expect((await api("PATCH", "policy/", { by_file: false })).status).toBe(204);
  expect((await api("POST", "groups/", { name: "other" })).status).toBe(201);
});

test("the JSON Schema of policy files is public", async () => {
  const { status, headers, text } = await server.send("GET", "/api/schema/policy/");
  expect([status, headers.get("content-type")]).toEqual([200, "application/schema+json"]);
  expect(JSON.parse(text)).toMatchObject({ type: "object", additionalProperties: false });
});
