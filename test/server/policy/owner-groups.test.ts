// Rules about the nodes of a user: in files, by the API, in configurations and certificates, before and after a transfer.

import { beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { certifiedGroups, ownerGroup, userOfGroup } from "../../../src/protocol/users-groups.ts";
import { ErrorBody } from "../../../src/protocol/error-body.ts";
import { Node } from "../../../src/protocol/node.ts";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { Plan, Policy } from "../../../src/api/policy.ts";
import { planText } from "../../../src/server/policy-files/plan-text.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import {
  certificateOf,
  codeOf,
  downloadOf,
  makeKeys,
  nodeOf,
  registerNode,
  registrationToken,
  sendRegistration,
  type RegisteredNode,
} from "../../support/nodes.ts";
import { fetchNames, noHosts } from "../../support/names.ts";
import { useNumbered } from "../../support/numbered.ts";
import { membershipOf } from "../../support/people.ts";
import type { Answer, TestServer } from "../../support/server.ts";

type HostsFile = typeof noHosts;
let server: TestServer;
let org: Organization;
let admin = "";
let ada = "";
let adasToken = "";
let laptop: RegisteredNode;
let db: RegisteredNode;
useNumbered((made) => {
  ({ server, org, admin } = made);
  ada = `ada-${made.count}@example.org`;
});
beforeEach(async () => {
  adasToken = await server.person(ada);
  await server.join(org, ada, "member");
  laptop = await registerNode(server, org, "laptop");
  const registration_token = await registrationToken(server, org, { groups: ["db"] });
  db = await registerNode(server, org, "db1", { registration_token });
});

const send = (method: string, path: string, body?: object): Promise<Answer> =>
  server.send(method, `/api/org/${org.slug}/${path}`, {
    token: admin,
    ...(body === undefined ? {} : { body }),
  });
const transfer = async (owner: string | null) =>
  expect((await send("POST", `nodes/${laptop.id}/transfer/`, { owner })).status).toBe(200);
const idOf = async (email: string) =>
  Number((await server.db.get("SELECT id FROM users WHERE email = $1", [email]))?.["id"]);
const certificate = async (node: RegisteredNode) =>
  certificateOf(downloadOf(await node.download()), server.clock.ms);
const configOf = async (node: RegisteredNode) => downloadOf(await node.download()).files["config.yml"];
const blockedSoon = async () => {
  const sql = `SELECT count(*) AS n FROM certificates WHERE node_id = $1 AND state = 'former' AND block_after IS NOT NULL`;
  return Number((await server.db.get(sql, [laptop.id]))?.["n"]);
};
const detailOf = (answer: Answer) => v.parse(v.looseObject(ErrorBody.entries), answer.json).detail;
const plan = async (policy: string) =>
  v.parse(Plan, (await send("POST", "policy/plan/", { policy, prune: true })).json);
const apply = (policy: string) => send("POST", "policy/apply/", { policy, prune: true });
const allowed = async () => {
  const packet = { from: laptop.id, to: db.id, protocol: "tcp", port: 5432 };
  return v.parse(
    v.looseObject({ allowed: v.boolean() }),
    (await send("POST", "firewall_rules/test/", packet)).json,
  ).allowed;
};
const file = (email: string) => `rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: tcp, ports: 5432, peer: "user:${email}", target: group:db}
tests:
  - accept: {from: "user:${email}", to: group:db, protocol: tcp, port: 5432}
`;

test("a certificate holds the group of the node's owner; a transfer replaces it and blocks the former one", async () => {
  expect((await certificate(laptop)).groups).toEqual([]);
  await transfer(ada);
  const own = ownerGroup(await idOf(ada));
  expect((await certificate(laptop)).groups).toEqual([own]);
  expect(await blockedSoon()).toBe(0);
  expect((await certificate(db)).groups).toEqual(["db"]);
  await transfer(null);
  expect((await certificate(laptop)).groups).toEqual([]);
  expect(await blockedSoon()).toBeGreaterThan(0);
});

test("a transfer to the same owner, and one of a node without a certificate, issue nothing", async () => {
  await transfer(ada);
  const { notAfter } = await certificate(laptop);
  server.clock.ms += 60_000;
  await transfer(ada);
  expect((await certificate(laptop)).notAfter).toBe(notAfter);
  const { id } = v.parse(
    v.looseObject({ id: v.number() }),
    (await send("POST", "nodes/", { name: "later" })).json,
  );
  expect((await send("POST", `nodes/${id}/transfer/`, { owner: ada })).status).toBe(200);
});

test("a file names users by e-mail address: plan, explainer and configurations follow the owner", async () => {
  await transfer(ada);
  const made = await plan(file(ada));
  expect(made.rules.create).toMatchObject([{ peer: `user:${ada}`, target: "group:db" }]);
  expect(made.access.classes).toContainEqual(
    expect.objectContaining({
      from: { groups: [`user:${ada}`], nodes: ["laptop"], count: 1 },
      gains: ["tcp/5432"],
    }),
  );
  expect((await apply(file(ada.toUpperCase().replace("EXAMPLE.ORG", "example.org")))).status).toBe(200);
  expect(await allowed()).toBe(true);
  expect(await configOf(db)).toContain(`group: "${ownerGroup(await idOf(ada))}"`);
  await transfer(null);
  expect(await allowed()).toBe(false);
});

test("a rule whose target is a user reaches the configuration of this user's nodes alone", async () => {
  const group = ownerGroup(await idOf(ada));
  const rule = {
    direction: "inbound",
    protocol: "udp",
    ports: "4711",
    peer: { any: true },
    target: { group },
  };
  expect((await send("POST", "firewall_rules/", rule)).status).toBe(201);
  expect(await configOf(laptop)).not.toContain("4711");
  await transfer(ada);
  expect(await configOf(laptop)).toContain("4711");
  expect(await configOf(db)).not.toContain("4711");
});

test("other nodes know the name of a node from the transfer on", async () => {
  const policy = `rules:
  - {direction: outbound, protocol: tcp, ports: 5432, peer: group:db, target: "user:${ada}"}
  - {protocol: tcp, ports: 5432, peer: "user:${ada}", target: group:db}
`;
  expect((await apply(policy)).status).toBe(200);
  const names = async (before?: HostsFile) => (await fetchNames(db, before)).hosts;
  const namesIn = ({ nodes }: HostsFile) => nodes.map(({ name }) => name).sort();
  const before = await names();
  expect(namesIn(before)).toEqual(["db1"]);
  await transfer(ada);
  const after = await names(before);
  expect(namesIn(after)).toEqual(["db1", "laptop"]);
  await transfer(null);
  expect(namesIn(await names(after))).toEqual(["db1"]);
});

test("the rule stays with the user's number: a later user with the address inherits nothing", async () => {
  await transfer(ada);
  await apply(file(ada));
  const first = await idOf(ada);
  const id = await membershipOf(server.db, org, ada);
  expect((await send("DELETE", `members/${id}/`)).status).toBe(204);
  const still = "# It still holds for the nodes that the user owns.";
  const present = async () => v.parse(Policy, (await send("GET", "policy/")).json).policy;
  expect(await present()).toContain(still);
  await transfer(null);
  expect(await present()).not.toContain(still);
  expect(detailOf(await apply(file(ada)))).toContain(`There is no member ${ada}.`);
  // The address becomes another user's.
  await server.db.write((tx) =>
    tx.run("UPDATE users SET email = $1 WHERE id = $2", [`former-${ada}`, first]),
  );
  await server.person(ada);
  await server.join(org, ada, "member");
  const second = await idOf(ada);
  expect(second).not.toBe(first);
  const { rules } = await plan(file(ada));
  expect(rules.create).toMatchObject([{ peer: `user:${ada}` }]);
  expect(rules.delete).toMatchObject([{ peer: `user:#${first}` }]);
  const shown = v.parse(Policy, (await send("GET", "policy/")).json);
  expect(shown.source).toBe("state");
  expect(shown.policy).toContain("# Left out, because a node or member that it names is gone: rule");
  expect(shown.policy.replaceAll(/^#.*$/gm, "")).not.toContain("user:");
  expect(shown.policy).not.toContain(ada);
});

test("only members can be named, and nobody gets into the group of a user by its name", async () => {
  const stranger = "stranger@example.org";
  await server.person(stranger);
  const group = ownerGroup(await idOf(stranger));
  const rule = {
    direction: "inbound",
    protocol: "any",
    ports: "any",
    peer: { group },
    target: { any: true },
  };
  const refused = await send("POST", "firewall_rules/", rule);
  expect([...codeOf(refused), detailOf(refused)]).toEqual([
    400,
    "validation_failed",
    `User ${await idOf(stranger)} is not a member of the organization.`,
  ]);
  expect(detailOf(await apply(file(stranger)))).toContain(`There is no member ${stranger}.`);
  const own = ownerGroup(await idOf(ada));
  for (const answer of [
    await send("PATCH", `nodes/${db.id}/`, { groups: [own] }),
    await send("POST", "registration_tokens/", { groups: [own] }),
    await send("POST", "groups/", { name: own }),
    await apply(`groups:\n  "${own}": {members: [node:db1]}\n`),
  ])
    expect(codeOf(answer)).toEqual([400, "validation_failed"]);
  expect(detailOf(await apply(`groups:\n  db: {members: ["user:${stranger}"]}\n`))).toContain(
    `groups.db.members.0: There is no member ${stranger}.`,
  );
});

test("a group of an earlier release with such a name gives nothing", () => {
  expect(certifiedGroups({ groups: ["web", "user:id.7"], ownerGroups: [], ownerId: null })).toEqual(["web"]);
  expect(certifiedGroups({ groups: ["web", "user:7"], ownerGroups: [], ownerId: 3 })).toEqual([
    "web",
    "user:7",
    "user:id.3",
  ]);
  expect(["user:id.7", "user:id.07", "user:7", "User:id.7"].map(userOfGroup)).toEqual([
    7,
    undefined,
    undefined,
    undefined,
  ]);
});

const withMembers = (members: string, rest = "") => `groups:
  db: {}
  ops: {description: on call, members: [${members}]}
rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: tcp, ports: 5432, peer: group:ops, target: group:db}
${rest}`;
const withAda = () => withMembers(`"user:${ada}"`);
const shownNode = async (node: RegisteredNode) =>
  v.parse(Node, (await send("GET", `nodes/${node.id}/`)).json);
const isInOps = async (node: RegisteredNode) => (await certificate(node)).groups.includes("ops");
const shownPolicy = async () => v.parse(Policy, (await send("GET", "policy/")).json);
const remove = async (email: string) => {
  const id = await membershipOf(server.db, org, email);
  expect((await send("DELETE", `members/${id}/`)).status).toBe(204);
};

test("a file puts the nodes of a user into a group: plan, certificate, explainer and file say the same", async () => {
  await transfer(ada);
  const made = await plan(withAda());
  expect(made.groups.members).toEqual([{ group: "ops", add: [`user:${ada}`], remove: [] }]);
  expect(made.nodes).toMatchObject([{ name: "laptop", groups: { add: ["ops"], remove: [] } }]);
  expect(made.access.pairs).toContainEqual(
    expect.objectContaining({ from: { id: laptop.id, name: "laptop" }, gains: ["tcp/5432"] }),
  );
  expect(planText(made)).toContain(`~ group ops: +user:${ada}`);
  expect((await apply(withAda())).status).toBe(200);
  expect((await certificate(laptop)).groups).toEqual(["ops", ownerGroup(await idOf(ada))]);
  expect(await shownNode(laptop)).toMatchObject({ groups: [], owner_groups: ["ops"] });
  expect(await allowed()).toBe(true);
  expect(await plan(withAda())).toMatchObject({ is_empty: true, kept: [] });
  expect(await shownPolicy()).toMatchObject({ source: "file", drifted_since: null });
  const byHand = {
    direction: "inbound",
    protocol: "udp",
    ports: "any",
    peer: { any: true },
    target: { any: true },
  };
  expect((await send("POST", "firewall_rules/", byHand)).status).toBe(201);
  const { source, policy } = await shownPolicy();
  expect([source, policy.includes(`user:${ada}`), policy.includes("node:laptop")]).toEqual([
    "state",
    true,
    false,
  ]);
  expect(await plan(policy)).toMatchObject({ is_empty: true });
});

test("nodes join and leave the group with their owner", async () => {
  expect((await apply(withAda())).status).toBe(200);
  expect(await isInOps(laptop)).toBe(false);
  await transfer(ada);
  expect([await isInOps(laptop), await blockedSoon()]).toEqual([true, 0]);
  await transfer(null);
  expect([await isInOps(laptop), (await shownNode(laptop)).owner_groups]).toEqual([false, []]);
  expect(await blockedSoon()).toBeGreaterThan(0);
  expect(await allowed()).toBe(false);
});

test("other nodes learn of a node's name when its owner joins a group, and forget it", async () => {
  await transfer(ada);
  const policy = (members: string) => `groups:
  db: {}
  ops: {members: [${members}]}
rules:
  - {direction: outbound, protocol: tcp, ports: 5432, peer: group:db, target: group:ops}
  - {protocol: tcp, ports: 5432, peer: group:ops, target: group:db}
`;
  let known: HostsFile | undefined;
  const namesWith = async (members: string) => {
    expect((await apply(policy(members))).status).toBe(200);
    known = (await fetchNames(db, known)).hosts;
    return known.nodes.map(({ name }) => name).sort();
  };
  expect(await namesWith("")).toEqual(["db1"]);
  expect(await namesWith(`"user:${ada}"`)).toEqual(["db1", "laptop"]);
  expect(await namesWith("")).toEqual(["db1"]);
});

test("a node that the user enrolls later is in the group", async () => {
  expect((await apply(withAda())).status).toBe(200);
  const id = await membershipOf(server.db, org, ada);
  expect((await send("PATCH", `members/${id}/`, { role: "admin" })).status).toBe(200);
  const keys = await makeKeys("adas");
  const answer = await sendRegistration(server, org.slug, { name: "adas", ...keys }, { token: adasToken });
  expect(answer.status).toBe(201);
  const own = nodeOf(server, org, keys, v.parse(RegisterAnswer, answer.json));
  expect(await shownNode(own)).toMatchObject({ owner_id: await idOf(ada), owner_groups: ["ops"] });
  expect(await isInOps(own)).toBe(true);
});

test("a user who is removed leaves the group at once, and gets nothing back by a return or a rollback", async () => {
  await transfer(ada);
  expect((await apply(withAda())).status).toBe(200);
  const waiting = await send("POST", "policy/apply/", { policy: withMembers(""), prune: true, confirm: 600 });
  expect(waiting.status).toBe(200);
  expect(await isInOps(laptop)).toBe(false);
  await remove(ada);
  expect((await send("POST", "policy/revert/")).status).toBe(200);
  expect(await isInOps(laptop)).toBe(false);
  await server.join(org, ada, "member");
  expect((await apply(withAda())).status).toBe(200);
  expect(await isInOps(laptop)).toBe(true);
  await remove(ada);
  expect([await isInOps(laptop), await allowed()]).toEqual([false, false]);
  expect(await blockedSoon()).toBeGreaterThan(0);
  await server.join(org, ada, "member");
  expect(await isInOps(laptop)).toBe(false);
  expect((await shownPolicy()).source).toBe("state");
});

test("a rollback brings back the users of a group", async () => {
  await transfer(ada);
  expect((await apply(withAda())).status).toBe(200);
  await send("POST", "policy/apply/", { policy: withMembers(""), prune: true, confirm: 600 });
  expect((await send("POST", "policy/revert/")).status).toBe(200);
  expect(await isInOps(laptop)).toBe(true);
  expect((await shownPolicy()).source).toBe("file");
});

test("without --prune users stay in a group; what a node was given itself stays in any case", async () => {
  await transfer(ada);
  expect((await apply(withAda())).status).toBe(200);
  const kept = await send("POST", "policy/plan/", { policy: withMembers("node:db1") });
  expect(v.parse(Plan, kept.json).kept).toContain(
    `user:${ada} is in the group ops, not in the file. It stays without --prune.`,
  );
  const unsaid = "groups:\n  db: {}\n  ops: {}\n";
  expect(await plan(unsaid)).toMatchObject({ is_empty: true });
  expect(codeOf(await send("DELETE", "groups/ops/"))).toEqual([409, "conflict"]);
  expect((await apply(withMembers(`"user:${ada}", node:laptop`))).status).toBe(200);
  expect((await shownNode(laptop)).groups).toEqual(["ops"]);
  const { nodes, access } = await plan(withMembers("node:laptop"));
  expect([nodes.map(({ groups }) => groups.remove), access.pairs_changed]).toEqual([[["ops"]], 0]);
  expect((await apply(withMembers("node:laptop"))).status).toBe(200);
  expect(await isInOps(laptop)).toBe(true);
});

test("with --prune a group that the file does not name loses its users, and goes", async () => {
  await transfer(ada);
  expect((await apply(withAda())).status).toBe(200);
  const { groups } = await plan("groups:\n  db: {}\nrules: []\n");
  expect(groups).toMatchObject({ delete: ["ops"], members: [{ group: "ops", remove: [`user:${ada}`] }] });
  expect((await apply("groups:\n  db: {}\nrules: []\n")).status).toBe(200);
  expect((await certificate(laptop)).groups).toEqual([ownerGroup(await idOf(ada))]);
  expect((await send("GET", "groups/ops/")).status).toBe(404);
});

test("a restored node has the groups that its owner has now", async () => {
  await transfer(ada);
  expect((await apply(withAda())).status).toBe(200);
  expect((await send("DELETE", `nodes/${laptop.id}/`)).status).toBe(204);
  expect((await apply(withMembers(""))).status).toBe(200);
  expect((await send("POST", `nodes/${laptop.id}/restore/`)).status).toBe(200);
  expect(await isInOps(laptop)).toBe(false);
});
