// Rules about the nodes of a user: in files, by the API, in configurations and certificates, before and after a transfer.

import { beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { certifiedGroups, ownerGroup, ownerOf } from "../../../src/owner-group.ts";
import { ErrorBody } from "../../../src/protocol.ts";
import { Plan, Policy } from "../../../src/server/policy-files/answers.ts";
import type { Organization } from "../../../src/server/policy/organizations.ts";
import {
  certificateOf,
  codeOf,
  downloadOf,
  registerNode,
  registrationToken,
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
let laptop: RegisteredNode;
let db: RegisteredNode;
useNumbered((made) => {
  ({ server, org, admin } = made);
  ada = `ada-${made.count}@example.org`;
});
beforeEach(async () => {
  await server.person(ada);
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
  expect(detailOf(await apply(`groups:\n  db: {members: ["user:${ada}"]}\n`))).toContain(
    "A file cannot put the nodes of a user into a group",
  );
});

test("a group of an earlier release with such a name gives nothing", () => {
  expect(certifiedGroups({ groups: ["web", "user:id.7"], ownerId: null })).toEqual(["web"]);
  expect(certifiedGroups({ groups: ["web", "user:7"], ownerId: 3 })).toEqual(["web", "user:7", "user:id.3"]);
  expect(["user:id.7", "user:id.07", "user:7", "User:id.7"].map(ownerOf)).toEqual([
    7,
    undefined,
    undefined,
    undefined,
  ]);
});
