// A plan is refused with the sentence with which applying it would be refused, and no answer grows with the tests' ports.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { ErrorBody } from "../../../src/protocol/error-body.ts";
import { Plan, Policy, policyApi } from "../../../src/api/policy.ts";
import { checkPolicies } from "../../../src/server/policy-files/policy-upkeep.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { registerNode } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { Answer, TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin = "";
useNumbered((made) => ({ server, org, admin } = made));
beforeEach(async () => {
  for (const name of ["one", "two"]) await registerNode(server, org, name);
});

const send = (path: string, body: object): Promise<Answer> =>
  server.send("POST", `/api/org/${org.slug}/policy/${path}/`, { token: admin, body });
const refusal = async (answer: Promise<Answer>) => {
  const { status, json } = await answer;
  const { code, detail } = v.parse(v.looseObject(ErrorBody.entries), json);
  return { status, code, detail };
};
const routes = (...list: [string, string][]) =>
  `routes: [${list.map(([network, via]) => `{network: ${network}, via: "node:${via}"}`).join(", ")}]\n`;
const many = (count: number, make: (at: number) => string) =>
  Array.from({ length: count }, (_, at) => make(at));

test.each([
  ["the default route", routes(["0.0.0.0/0", "one"]), "would route all traffic of every node."],
  ["a special network", routes(["127.0.0.0/8", "one"]), "which is never routed through an overlay."],
  ["the overlay's network", routes(["10.0.0.0/8", "one"]), "overlaps the overlay's own network"],
  ["IPv6 without certificates of version 2", routes(["fd12::/64", "one"]), "needs certificates of version 2"],
  [
    "too many subnets",
    routes(...many(65, (at) => `172.16.${at}.0/24`).map((each): [string, string] => [each, "one"])),
    "The node one would have 65 subnets; the maximum is 64.",
  ],
  [
    "too many groups",
    `groups: {${many(65, (at) => `g${at}: {members: ["node:one"]}`).join(", ")}}\n`,
    "The node one would have 65 groups; the maximum is 64.",
  ],
  [
    "too many rules",
    `rules: [${many(2001, (at) => `{ports: ${at + 1}, peer: any, target: any}`).join(", ")}]\n`,
    "The organization would have 2001 firewall rules; the maximum is 2000.",
  ],
  ["an alias with the name of a node", "aliases: [{name: two, node: node:one}]\n", "A node is named two."],
  [
    "an alias of an address behind no node",
    "aliases: [{name: nas, node: node:one, address: 192.168.5.9}]\n",
    "192.168.5.9 is in no subnet that the node one routes.",
  ],
])(
  "plan and apply refuse %s with one sentence",
  async (_, policy, sentence) => {
    const planned = await refusal(send("plan", { policy, prune: true }));
    expect(planned.detail).toContain(sentence);
    expect(await refusal(send("apply", { policy, prune: true }))).toEqual(planned);
    expect(await refusal(send("test", { policy, prune: true }))).toEqual(planned);
  },
  60_000,
);

test("a second router of a network is no fault; the public address of a relay is", async () => {
  expect((await send("apply", { policy: routes(["192.168.5.0/24", "one"]) })).status).toBe(200);
  const taken = routes(["192.168.5.0/24", "two"]);
  expect((await send("plan", { policy: taken })).status).toBe(200);
  await server.db.write((tx) =>
    tx.run("UPDATE nodes SET public_ip = $1 WHERE name = 'two'", ["192.168.5.7"]),
  );
  const relay = "relays: [node:two]\n";
  expect(await refusal(send("plan", { policy: relay }))).toMatchObject({
    code: "conflict",
    detail: "The subnet 192.168.5.0/24 holds 192.168.5.7, the public address of two.",
  });
  // The same file takes the subnet away.
  expect((await send("plan", { policy: `${relay}routes: []`, prune: true })).status).toBe(200);
  expect((await send("apply", { policy: `${relay}routes: []`, prune: true })).status).toBe(200);
});

test.each([
  ["a router", routes(["192.168.5.0/24", "two"])],
  ["a relay", "relays: [node:two]\n"],
])("a phone as %s is refused with one sentence", async (_, policy) => {
  await server.db.write((tx) => tx.run("UPDATE nodes SET phone = 'ios' WHERE name = 'two'"));
  const planned = await refusal(send("plan", { policy }));
  expect(planned.detail).toBe("A phone cannot be a lighthouse, a relay, a router or an exit.");
  expect(await refusal(send("apply", { policy }))).toEqual(planned);
});

test("two nodes exchange their subnets in one file", async () => {
  const [a, b] = ["192.168.5.0/24", "192.168.6.0/24"];
  expect((await send("apply", { policy: routes([a, "one"], [b, "two"]), prune: true })).status).toBe(200);
  const exchanged = { policy: routes([b, "one"], [a, "two"]), prune: true };
  const { nodes } = v.parse(Plan, (await send("plan", exchanged)).json);
  expect(nodes.map(({ name, routes: delta }) => ({ name, ...delta }))).toEqual([
    { name: "one", add: [b], remove: [a] },
    { name: "two", add: [a], remove: [b] },
  ]);
  expect((await send("apply", exchanged)).status).toBe(200);
  expect(v.parse(Plan, (await send("plan", exchanged)).json).is_empty).toBe(true);
});

test("a test that fails for a thousand ranges of ports names the first ones", async () => {
  const rules = many(400, (at) => `{protocol: tcp, ports: ${2 * at + 1}, peer: any, target: any}`);
  const tests = many(100, () => "{accept: {from: any, to: any, protocol: any}}");
  const policy = `rules: [{direction: outbound, peer: any, target: any}, ${rules.join(", ")}]\ntests: [${tests.join(", ")}]\n`;
  const answer = await send("test", { policy, prune: true });
  const { count, failing } = v.parse(policyApi.test.answers[200].schema, answer.json);
  expect([count, failing.length]).toEqual([100, 100]);
  expect(failing[0]).toContain("tcp/2, tcp/4");
  expect(failing[0]).toContain("380 more ranges of tcp ports");
  expect(answer.text.length).toBeLessThan(100_000);
  const { access } = v.parse(Plan, (await send("plan", { policy, prune: true })).json);
  expect(access.pairs.every(({ gains }) => gains.length <= 50)).toBe(true);
});

test("a file that cannot be applied any more is drift, and keeps no other organization waiting", async () => {
  const policy = "aliases: [{name: cache, node: node:one}]\n";
  expect((await send("apply", { policy, prune: true })).status).toBe(200);
  const get = (path: string) => server.send("GET", `/api/org/${org.slug}/${path}`, { token: admin });
  const [alias] = v.parse(v.array(v.object({ id: v.number() })), (await get("names/")).json);
  const deleted = await server.send("DELETE", `/api/org/${org.slug}/names/${alias?.id}/`, { token: admin });
  expect(deleted.status).toBe(204);
  await registerNode(server, org, "cache");
  expect((await refusal(send("plan", { policy, prune: true }))).detail).toContain("A node is named cache.");
  const { status, json } = await get("policy/");
  expect([status, v.parse(Policy, json).source]).toEqual([200, "state"]);
  await checkPolicies(server.app.services);
  const row = await server.db.get("SELECT drifted_at FROM policies WHERE org_id = $1", [org.id]);
  expect(row).toEqual({ drifted_at: server.clock.ms });
});
