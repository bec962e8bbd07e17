// What follows an applied policy: its tests at each edit, edits by hand, the deadline of its confirmation.

import { policyApi } from "../../../src/api/policy.ts";
import { describe, expect, test } from "bun:test";
import * as v from "valibot";
import { patchPolicy } from "../../../src/server/policy-files/apply.ts";
import { confirmPolicy, revertPolicy } from "../../../src/server/policy-files/confirm.ts";
import { checkPolicies, revertUnconfirmed } from "../../../src/server/policy-files/policy-upkeep.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { addCertificates } from "../../support/many-certificates.ts";
import { registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { base, usePolicyFiles } from "../../support/policy-files.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let web: RegisteredNode;
let db: RegisteredNode;
const { api, good, apply, applied, show, plan, failure, events } = usePolicyFiles(
  (made) => ({ server, org, web, db } = made),
);
const services = () => server.app.services;

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
      detail: expect.stringContaining("db1 must not reach web1 on tcp/any, but tcp/22 is permitted by rule"),
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
    expect(refused.detail).toContain(
      "a node of group web must reach db1 on tcp/5432, but tcp/5432 is refused",
    );
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
    // A node that joins is never refused, with its groups. The file takes away those that it does not name.
    expect((await api("POST", "nodes/", { name: "web2", groups: ["web"] })).status).toBe(201);
    expect((await plan(base)).nodes).toMatchObject([{ name: "web2", groups: { remove: ["web"] } }]);
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

  test.each([
    ["at its deadline", true],
    ["on request", false],
  ])("goes back %s without what has become impossible, and says what that is", async (_, isDue) => {
    const routed = `${base}routes: [{network: 192.168.5.0/24, via: node:web1}]
aliases: [{name: nas, node: node:db1}, {name: printer, node: node:web1, address: 192.168.5.9}]
`;
    const rest = base.replace("[node:web1]", "[]").replace(/tests:[^]*/, "");
    await applied(routed);
    await applied(`${rest}routes: []\naliases: []\ntests: []\n`, { confirm: 600 });
    // None of this is a change of the policy.
    const created = await api("POST", "nodes/", { name: "relay2", is_relay: true, public_ip: "192.168.5.7" });
    expect([created.status, created.text]).toEqual([201, created.text]);
    await registerNode(server, org, "nas");
    await addCertificates(server, web, 200, "former");
    if (isDue) server.clock.ms += 600_000;
    const revert = () => good(policyApi.revert.answers[200].schema, api("POST", "policy/revert/"));
    const answer = isDue ? await revertUnconfirmed(services()) : await revert();
    const left = [
      "The route 192.168.5.0/24 of web1 is not as before: The subnet 192.168.5.0/24 holds 192.168.5.7, the public address of relay2.",
      "The alias nas is not as before: A node is named nas. An alias never takes the name of a node.",
      "The alias printer is not as before: 192.168.5.9 is in no subnet that the node web1 routes.",
    ];
    if (answer !== undefined) expect(answer.left_out).toEqual(left);
    expect(await events("policy.reverted")).toMatchObject([{ after: { left_out: left } }]);
    expect((await api("GET", `nodes/${web.id}/`)).json).toMatchObject({ groups: ["web"], subnets: [] });
    expect((await show()).unconfirmed).toBeNull();
    expect((await api("POST", "groups/", { name: "other" })).status).toBe(201);
  });

  test("leaves out the one route that holds a relay's address by now, not the node's other routes and its relay", async () => {
    const [mine, taken, other] = ["192.168.4.0/24", "192.168.5.0/24", "192.168.6.0/24"];
    const routes = [mine, taken, other].map((each) => `{network: ${each}, via: node:web1}`).join(", ");
    await applied(`${base}routes: [${routes}]\nrelays: [node:web1]\n`);
    await applied(`${base}routes: []\nrelays: []\n`, { confirm: 600, prune: true });
    expect((await api("GET", `nodes/${web.id}/`)).json).toMatchObject({ subnets: [], is_relay: false });
    const relay = { name: "relay3", is_relay: true, public_ip: "192.168.5.7" };
    expect((await api("POST", "nodes/", relay)).status).toBe(201);
    const { left_out } = await good(policyApi.revert.answers[200].schema, api("POST", "policy/revert/"));
    expect(left_out).toEqual([
      `The route ${taken} of web1 is not as before: The subnet ${taken} holds 192.168.5.7, the public address of relay3.`,
    ]);
    const node = (await api("GET", `nodes/${web.id}/`)).json;
    expect(node).toMatchObject({ subnets: [mine, other], is_relay: true });
  });

  test("brings a second router of a network back", async () => {
    const route = (name: string) => `{network: 192.168.5.0/24, via: node:${name}}`;
    await applied(`${base}routes: [${route("web1")}, ${route("db1")}]\n`);
    await applied(`${base}routes: [${route("db1")}]\n`, { confirm: 600, prune: true });
    expect((await api("GET", `nodes/${web.id}/`)).json).toMatchObject({ subnets: [] });
    const { left_out } = await good(policyApi.revert.answers[200].schema, api("POST", "policy/revert/"));
    expect(left_out).toEqual([]);
    for (const { id } of [web, db])
      expect((await api("GET", `nodes/${id}/`)).json).toMatchObject({ subnets: ["192.168.5.0/24"] });
  });

  test("goes back with a rule that an earlier version stored and requests may not hold any more", async () => {
    await applied(base);
    await server.db.write((tx) => tx.run("UPDATE firewall_rules SET ports = '0' WHERE ports = '5432'"));
    await applied(base.replace("5432", "5433").replace(/tests:[^]*/, "tests: []\n"), {
      confirm: 600,
      prune: true,
    });
    expect((await api("POST", "policy/revert/")).status).toBe(200);
    expect((await api("GET", "firewall_rules/")).json).toMatchObject([{}, {}, { ports: "0" }]);
  });

  test("is neither confirmed nor taken back by somebody whose rights ended while the request waited", async () => {
    await applied(base, { confirm: 600 });
    const former = { kind: "person", id: 4711, ip: null } as const;
    for (const attempt of [
      confirmPolicy(services(), org, former),
      revertPolicy(services(), org, former),
      patchPolicy(services(), org, { by_file: true }, former),
    ])
      expect(await Promise.resolve(attempt).catch((error: unknown) => error)).toMatchObject({
        code: "permission_denied",
      });
    expect(await show()).toMatchObject({ by_file: false, unconfirmed: { by: "admin@example.org" } });
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
