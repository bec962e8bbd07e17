// Policy as code over the API: show, plan, apply.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { describe, expect, test } from "bun:test";
import * as v from "valibot";
import type { Organization } from "../../../src/api/organizations.ts";
import { downloadOf, registerNode, registrationToken, type RegisteredNode } from "../../support/nodes.ts";
import { base, Events, usePolicyFiles } from "../../support/policy-files.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let web: RegisteredNode;
let db: RegisteredNode;
const { api, apply, applied, show, plan, failure, events } = usePolicyFiles(
  (made) => ({ server, org, web, db } = made),
);
const Rules = v.array(v.looseObject({ id: v.number(), ports: v.string() }));

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
      counts: { rules_created: 1, rules_deleted: 0, rules_described: 0, nodes: 1 },
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

  test("an edited rule keeps its id, and so its history, if the request says which one it was", async () => {
    const file = (...rules: string[]) => JSON.stringify({ rules: rules.map((ports) => ruleOn(ports)) });
    const ruleOn = (ports: string) => ({ protocol: "tcp", ports, peer: "any", target: "any" });
    const numbers = async () =>
      v.parse(Rules, (await api("GET", "firewall_rules/")).json).map(({ id, ports }) => [ports, id] as const);
    await applied(file("22", "80"));
    const [one = 0, other = 0] = (await numbers()).map(([, id]) => id);
    const ids = { rule_ids: [null, one, other] };
    const planned = await plan(file("53", "23", "80"), true, ids);
    expect(planned.rules.create.map(({ id, ports }) => [ports, id])).toEqual([
      ["53", null],
      ["23", one],
    ]);
    await applied(file("53", "23", "80"), ids);
    const after = new Map(await numbers());
    expect([after.get("23"), after.get("80")]).toEqual([one, other]);
    expect((await events("policy.applied")).at(-1)?.after).toMatchObject({
      rule_ids: [after.get("53"), one],
      rules_deleted: [{ id: one, ports: "22" }],
    });
    // The id of a rule that stays, or of none, is nobody else's; and one rule alone takes the place of another.
    await applied(file("80", "24", "25", "26"), { rule_ids: [null, other, one, one] });
    const last = new Map(await numbers());
    expect([last.get("80"), last.get("25")]).toEqual([other, one]);
    expect(new Set(last.values()).size).toBe(4);
    // A way back: the former rule has its id again.
    await applied(file("80", "24", "27", "26"), { confirm: 60, rule_ids: [null, null, one, null] });
    await api("POST", "policy/revert/", {});
    expect(new Map(await numbers())).toEqual(last);
    // Without the removal, the rule stays beside the new one.
    await applied(file("28"), { prune: false, rule_ids: [one] });
    expect(new Map(await numbers()).get("25")).toBe(one);
    expect((await apply(file("28"), { rule_ids: [0] })).status).toBe(400);
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
    expect(refused.detail).toContain("web1 must reach db1 on tcp/5432, but tcp/5432 is refused");
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
    await registrationToken(server, org, { groups: ["guests"], node_name: "later", expires_in: "2m" });
    expect((await plan("groups: {}\n")).kept.toSorted()).toEqual([
      "The group db is not in the file. It stays while node db1 is in it.",
      "The group guests is not in the file. It stays while an open registration token gives it.",
      "The group web is not in the file. It stays while node web1 is in it.",
    ]);
    expect(
      (await plan("groups: {db: {}, guests: {}, web: {members: []}}\nrules: []\ntests: []\n")).kept,
    ).toEqual([]);
    // As for the API: an expired token keeps no group.
    server.clock.ms += 121_000;
    expect((await plan("groups: {}\n")).kept.join()).not.toContain("guests");
    expect((await api("DELETE", "groups/guests/")).status).toBe(204);
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

test("the JSON Schema of policy files is public", async () => {
  const { status, headers, text } = await server.send("GET", "/api/schema/policy/");
  expect([status, headers.get("content-type")]).toEqual([200, "application/schema+json"]);
  expect(JSON.parse(text)).toMatchObject({ type: "object", additionalProperties: false });
});
