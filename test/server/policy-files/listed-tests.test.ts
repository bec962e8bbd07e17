// Tests of the policy one by one, as the console lists and changes them.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterAll, beforeAll, expect, test } from "bun:test";
import * as v from "valibot";
import { policyText } from "../../../src/console/access/rule-edits.ts";
import type { Rule } from "../../../src/console/access/rules.ts";
import { testsText } from "../../../src/console/access/test-text.ts";
import { Policy } from "../../../src/api/policy.ts";
import { registerNode, registrationToken } from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let admin: string;

beforeAll(async () => {
  server = await makeTestServer({ accessLifetimeS: 1_000_000 });
  admin = await server.person("admin@example.org");
});
afterAll(() => server[Symbol.asyncDispose]());

async function start(slug: string, network: string) {
  const org = await server.organization(slug, network);
  await server.join(org, "admin@example.org", "admin");
  const send = (method: string, path: string, body?: unknown) =>
    server.send(method, `/api/org/${slug}/${path}`, {
      token: admin,
      ...(body === undefined ? {} : { body }),
    });
  const show = async () => v.parse(Policy, (await send("GET", "policy/")).json);
  const node = async (name: string, group: string) =>
    registerNode(server, org, name, {
      registration_token: await registrationToken(server, org, { groups: [group] }),
    });
  return { send, show, node };
}

type Shown = v.InferOutput<typeof Policy>["tests"]["list"][number];
const words = ({ expect: expected, from, to, protocol, ports, passes }: Shown) =>
  `${expected} ${from} ${to} ${protocol} ${ports} ${passes}`;
/** As the console sends it. */
const toTest = (test: Shown) => ({ ...test, protocol: test.protocol as "tcp" });

test("tests are added and deleted one by one; rules, groups and the file stay", async () => {
  const { send, show, node } = await start("acme", "10.1.0.0/16");
  await node("db-1", "db");
  await node("web-1", "web");
  const policy = `groups: {web: {}, db: {}}
rules: [{direction: outbound, peer: any, target: any}, {protocol: tcp, ports: 5432, peer: "group:web", target: "group:db"}]
tests: [{deny: {from: "group:db", to: "group:web", protocol: udp, port: 53-54}}]`;
  expect((await send("POST", "policy/apply/", { policy, prune: true })).status).toBe(200);
  const first = await show();
  expect(first.tests.list.map(words)).toEqual(["deny group:db group:web udp 53-54 true"]);
  const added = {
    expect: "accept" as const,
    from: "group:web",
    to: "node:db-1",
    protocol: "tcp" as const,
    ports: "5432",
    passes: null,
  };
  const save = (tests: Parameters<typeof testsText>[0], version: number) =>
    send("POST", "policy/apply/", {
      policy: policyText(undefined, testsText(tests)),
      keep_file: true,
      version,
    });
  expect((await save([...first.tests.list.map(toTest), added], first.version)).status).toBe(200);
  const second = await show();
  expect(second.tests.list.map(words)).toEqual([
    "deny group:db group:web udp 53-54 true",
    "accept group:web node:db-1 tcp 5432 true",
  ]);
  // A test that fails is refused, and so is one on a version that is not the present one.
  const wrong = { ...added, expect: "deny" as const };
  expect((await save([wrong], second.version)).json).toMatchObject({ code: "policy_test_failed" });
  expect((await save([], first.version)).json).toMatchObject({ code: "policy_changed" });
  expect((await save(second.tests.list.slice(1).map(toTest), second.version)).status).toBe(200);
  expect((await show()).tests.list.map(words)).toEqual(["accept group:web node:db-1 tcp 5432 true"]);
  const rules = v.parse(
    v.array(v.looseObject({ ports: v.string() })),
    (await send("GET", "firewall_rules/")).json,
  );
  expect(rules.map(({ ports }) => ports).toSorted()).toEqual(["5432", "any"]);
  // A test that fails now is saved with the rules that repair it, in one step.
  const side = { peer: "any", target: "any", description: "" } as const;
  const repaired: Rule[] = [
    { id: 1, direction: "outbound", protocol: "any", ports: "any", ...side },
    { id: -1, direction: "inbound", protocol: "udp", ports: "53", ...side },
    { id: -2, direction: "inbound", protocol: "tcp", ports: "5432", ...side },
  ];
  const repairedBy = { ...added, protocol: "udp" as const, ports: "53" };
  const { version } = await show();
  expect((await save([added, repairedBy], version)).json).toMatchObject({ code: "policy_test_failed" });
  const together = policyText(repaired, testsText([added, repairedBy]));
  const body = { policy: together, prune: true, keep_file: true, version };
  expect((await send("POST", "policy/apply/", body)).status).toBe(200);
  expect((await show()).tests.list.map(words)).toEqual([
    "accept group:web node:db-1 tcp 5432 true",
    "accept group:web node:db-1 udp 53 true",
  ]);
});

test("a test that fails is listed so, and one about a node that is gone is not sent again", async () => {
  const { send, show, node } = await start("other", "10.2.0.0/16");
  const db = await node("db-1", "db");
  await node("web-1", "web");
  const policy = `groups: {web: {}, db: {}}
rules: [{direction: outbound, peer: any, target: any}, {protocol: tcp, peer: "group:web", target: "group:db"}]
tests: [{accept: {from: "group:web", to: "node:db-1", protocol: tcp, port: 22}}, {deny: {from: "group:db", to: "group:web"}}]`;
  expect((await send("POST", "policy/apply/", { policy, prune: true })).status).toBe(200);
  expect((await send("DELETE", `nodes/${db.id}/`)).status).toBe(204);
  const { tests } = await show();
  expect(tests.list.map(words)).toEqual([
    `accept group:web node:#${db.id} tcp 22 false`,
    "deny group:db group:web any any true",
  ]);
  expect(testsText(tests.list.map(toTest))).toBe(
    '[{"deny":{"from":"group:db","to":"group:web","protocol":"any","port":"any"}}]',
  );
});

test("a group that a test names stays: a policy file could not hold the test without it", async () => {
  const { send, show } = await start("third", "10.3.0.0/16");
  const rules = "rules: [{direction: outbound, peer: any, target: any}]";
  const tests = 'tests: [{deny: {from: "group:db", to: "group:web"}}]';
  const apply = (policy: string) => send("POST", "policy/apply/", { policy, prune: true });
  expect((await apply(`groups: {web: {}, db: {}}\n${rules}\n${tests}`)).status).toBe(200);
  const refused = await send("DELETE", "groups/db/");
  expect([refused.status, refused.text]).toEqual([409, expect.stringContaining("test 1 of the policy")]);
  expect((await apply(`groups: {web: {}}\n${rules}`)).json).toMatchObject({
    kept: ["The group db is not in the file. It stays while test 1 names it."],
  });
  const sides = { peer: { any: true }, target: { any: true } };
  const byHand = { direction: "outbound", protocol: "tcp", ports: "80", ...sides };
  expect((await send("POST", "firewall_rules/", byHand)).status).toBe(201);
  const { source, policy } = await show();
  expect(source).toBe("state");
  const planned = await send("POST", "policy/plan/", { policy, prune: true });
  expect(planned.json).toMatchObject({ is_empty: true, kept: [] });
  // The tests and the group go in one step.
  expect((await apply(`groups: {web: {}}\n${rules}\ntests: []`)).status).toBe(200);
  expect((await show()).policy).not.toContain("db");
});
