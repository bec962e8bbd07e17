// Rules between the nodes of one owner: in files, by the API, in configurations and names, before and after a transfer.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { ownerGroup } from "../../../src/protocol/users-groups.ts";
import { ErrorBody } from "../../../src/protocol/error-body.ts";
import { Plan, Policy } from "../../../src/api/policy.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { planText } from "../../../src/server/policy-files/plan-text.ts";
import { fetchNames } from "../../support/names.ts";
import { codeOf, downloadOf, registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { Answer, TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin = "";
let ada = "";
let ben = "";
useNumbered((made) => {
  ({ server, org, admin } = made);
  [ada, ben] = [`ada-${made.count}@example.org`, `ben-${made.count}@example.org`];
});

let laptop: RegisteredNode;
let desktop: RegisteredNode;
let phone: RegisteredNode;
let printer: RegisteredNode;
beforeEach(async () => {
  for (const email of [ada, ben]) {
    await server.person(email);
    await server.join(org, email, "member");
  }
  laptop = await registerNode(server, org, "laptop");
  desktop = await registerNode(server, org, "desktop");
  phone = await registerNode(server, org, "phone");
  printer = await registerNode(server, org, "printer");
  await transfer(laptop, ada);
  await transfer(desktop, ada);
  await transfer(phone, ben);
  await transfer(printer, null);
});

const send = (method: string, path: string, body?: object): Promise<Answer> =>
  server.send(method, `/api/org/${org.slug}/${path}`, {
    token: admin,
    ...(body === undefined ? {} : { body }),
  });
const transfer = async (node: RegisteredNode, owner: string | null) =>
  expect((await send("POST", `nodes/${node.id}/transfer/`, { owner })).status).toBe(200);
const idOf = async (email: string) =>
  Number((await server.db.get("SELECT id FROM users WHERE email = $1", [email]))?.["id"]);
const detailOf = (answer: Answer) => v.parse(v.looseObject(ErrorBody.entries), answer.json).detail;
const configOf = async (node: RegisteredNode) => downloadOf(await node.download()).files["config.yml"];
const plan = async (policy: string) =>
  v.parse(Plan, (await send("POST", "policy/plan/", { policy, prune: true })).json);
const apply = (policy: string) => send("POST", "policy/apply/", { policy, prune: true });
const mayReach = async (from: RegisteredNode, to: RegisteredNode) =>
  v.parse(
    v.looseObject({ allowed: v.boolean() }),
    (await send("POST", "firewall_rules/test/", { from: from.id, to: to.id, protocol: "tcp", port: 22 }))
      .json,
  ).allowed;
const namesOf = async (node: RegisteredNode) =>
  (await fetchNames(node)).hosts.nodes.map(({ name }) => name).sort();

const file = `rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: tcp, ports: 22, peer: self, target: any}
`;

test("nodes of one owner reach each other, and no other nodes, by plan, explainer, configurations and names", async () => {
  const planned = await plan(file);
  expect(planned.rules.create).toMatchObject([{ peer: "self", target: "any", ports: "22" }]);
  expect(planned.access.pairs.filter(({ gains }) => gains.length > 0)).toMatchObject([
    { from: { name: "laptop" }, to: { name: "desktop" }, gains: ["tcp/22"] },
    { from: { name: "desktop" }, to: { name: "laptop" }, gains: ["tcp/22"] },
  ]);
  expect(planText(planned)).toContain(" of the same owner: gains tcp/22");
  expect((await apply(file)).status).toBe(200);
  expect(v.parse(Policy, (await send("GET", "policy/")).json)).toMatchObject({
    source: "file",
    policy: file,
  });
  expect(await mayReach(laptop, desktop)).toBe(true);
  for (const [from, to] of [
    [laptop, phone],
    [phone, laptop],
    [laptop, printer],
    [printer, laptop],
    [printer, phone],
  ] as const)
    expect(await mayReach(from, to)).toBe(false);
  expect(await configOf(laptop)).toContain(`group: "${ownerGroup(await idOf(ada))}"`);
  expect(await configOf(phone)).toContain(`group: "${ownerGroup(await idOf(ben))}"`);
  expect(await configOf(printer)).not.toContain("22");
  expect(await namesOf(laptop)).toEqual(["desktop", "laptop"]);
  expect(await namesOf(phone)).toEqual(["phone"]);
  expect(await namesOf(printer)).toEqual(["printer"]);
});

test("a transfer gives and takes the access at once", async () => {
  expect((await apply(file)).status).toBe(200);
  await transfer(desktop, ben);
  expect([await mayReach(laptop, desktop), await mayReach(phone, desktop)]).toEqual([false, true]);
  expect(await configOf(desktop)).toContain(`group: "${ownerGroup(await idOf(ben))}"`);
  expect(await configOf(desktop)).not.toContain(ownerGroup(await idOf(ada)));
  await transfer(desktop, null);
  expect([await mayReach(phone, desktop), await mayReach(desktop, phone)]).toEqual([false, false]);
  expect(await configOf(desktop)).not.toContain("user:");
});

test("tests of the policy know owners", async () => {
  const tests = `tests:
  - accept: {from: "user:${ada}", to: "user:${ada}", protocol: tcp, port: 22}
  - deny: {from: "user:${ada}", to: "user:${ben}", protocol: tcp}
`;
  expect((await apply(file + tests)).status).toBe(200);
  const wrong = `tests:\n  - accept: {from: any, to: "user:${ada}", protocol: tcp, port: 22}\n`;
  const { tests: result } = await plan(file + wrong);
  expect(result.failing).toEqual([
    expect.stringMatching(
      /Test 1: (phone|printer) must reach (laptop|desktop) on tcp\/22, but tcp\/22 is refused/,
    ),
  ]);
});

test("a rule made by hand, its file, and what is refused", async () => {
  const rule = { direction: "inbound", protocol: "tcp", ports: "22", target: { any: true } };
  expect((await send("POST", "firewall_rules/", { ...rule, peer: { group: "user:self" } })).status).toBe(201);
  expect(await mayReach(laptop, desktop)).toBe(true);
  expect(v.parse(Policy, (await send("GET", "policy/")).json).policy).toContain("peer: self");
  const target = await send("POST", "firewall_rules/", {
    ...rule,
    peer: { any: true },
    target: { group: "user:self" },
  });
  expect(codeOf(target)).toEqual([400, "validation_failed"]);
  for (const policy of ["rules: [{peer: any, target: self}]", "tests: [{deny: {from: self, to: any}}]"])
    expect(detailOf(await apply(policy))).toContain("self is a peer only");
  for (const answer of [
    await send("PATCH", `nodes/${printer.id}/`, { groups: ["user:self"] }),
    await send("POST", "registration_tokens/", { groups: ["user:self"] }),
    await send("POST", "groups/", { name: "user:self" }),
  ])
    expect(codeOf(answer)).toEqual([400, "validation_failed"]);
});

test("a group of an earlier release with this name gives nothing", async () => {
  await server.db.writeFor({ org: org.id }, (tx) =>
    tx.run(`UPDATE nodes SET groups = '["user:self"]' WHERE id IN ($1, $2)`, [printer.id, phone.id]),
  );
  expect((await apply(file)).status).toBe(200);
  expect([await mayReach(printer, phone), await mayReach(phone, printer)]).toEqual([false, false]);
});
