// GET nodes/attention/: what of an organization's nodes needs a person.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { ListedMember } from "../../../src/api/members.ts";
import { checkPolicies } from "../../../src/server/policy-files/policy-upkeep.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { onlineMs } from "../../../src/api/values.ts";
import { registerNode, registrationToken } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";

const dayMs = 86_400_000;
let server: TestServer;
let org: Organization;
const { call, configVersion } = useNumbered((made) => ({ server, org } = made));
const change = (sql: string, ...params: (string | number | null)[]) =>
  server.db.write((tx) => tx.run(sql, params));
const made = (name: string, fields: object = {}) => registerNode(server, org, name, { ...fields });
const attention = async (token?: string) => {
  const path = `/api/org/${org.slug}/nodes/attention/`;
  const answer =
    token === undefined ? await call("GET", "nodes/attention/") : await server.send("GET", path, { token });
  expect(answer.status).toBe(200);
  return answer.json;
};
const none = { count: 0, first: [] };

test("an organization without nodes has nothing that needs a person", async () => {
  expect(await attention()).toEqual({
    nodes: 0,
    active: 0,
    online: 0,
    lighthouses: 0,
    hubs_away: none,
    not_renewed: none,
    vulnerable_engines: none,
    not_applied: none,
    cloned: none,
    phones_due: none,
    ending_first: [],
    broken_paths: none,
    failing_tests: null,
    first_seal: null,
  });
});

test("nodes are counted, and lighthouses and relays that are away are named", async () => {
  const [alpha, beta, gone] = [await made("alpha"), await made("beta"), await made("gone")];
  await made("lighthouse-1", { is_lighthouse: true, public_ip: "192.0.2.1" });
  await call("POST", "nodes/", { name: "expected" });
  await call("DELETE", `nodes/${gone.id}/`);
  await call("PATCH", `nodes/${beta.id}/`, { is_relay: true });
  await alpha.checkin();
  await server.app.services.reports.stop();
  const found = await attention();
  expect(found).toMatchObject({ nodes: 4, active: 3, online: 1, lighthouses: 1, hubs_away: { count: 2 } });
  expect(found).toMatchObject({
    hubs_away: {
      first: [
        { name: "beta", is_lighthouse: false },
        { name: "lighthouse-1", is_lighthouse: true },
      ],
    },
  });
  // A report that is not written yet counts.
  await beta.checkin();
  expect(await attention()).toMatchObject({ hubs_away: { count: 1, first: [{ name: "lighthouse-1" }] } });
});

test("certificates that end within a week and were not renewed are named once, the first one first", async () => {
  const names = ["late", "later", "short", "job", "phone", "fine"];
  const ids = new Map<string, number>();
  for (const name of names) ids.set(name, (await made(name)).id);
  const ends = (name: string, days: number, lifeDays = 90) =>
    change(
      "UPDATE certificates SET not_after = $2, not_before = $3 WHERE node_id = $1",
      ids.get(name) ?? 0,
      server.clock.ms + days * dayMs,
      server.clock.ms + (days - lifeDays) * dayMs,
    );
  await ends("late", 1);
  await ends("later", 6);
  // Half of its life is left: it is renewed in time.
  await ends("short", 2, 4);
  await ends("job", 0.01);
  await ends("phone", 0.5);
  await ends("fine", 8);
  await change("UPDATE nodes SET ephemeral_silence_s = 600 WHERE id = $1", ids.get("job") ?? 0);
  await change("UPDATE nodes SET phone = 'ios', renew_at = 0 WHERE id = $1", ids.get("phone") ?? 0);
  // A second certificate of the other version.
  await change(
    `INSERT INTO certificates (org_id, node_id, authority_id, kind, version, fingerprint, pem, not_before, not_after,
       renew_at, state, created_at)
     SELECT org_id, node_id, authority_id, kind, 2, $2, pem, not_before, not_after, renew_at, state, created_at
     FROM certificates WHERE node_id = $1 AND kind = 'overlay'`,
    ids.get("late") ?? 0,
    `second of ${org.slug}`,
  );
  const found = await attention();
  expect(found).toMatchObject({ not_renewed: { count: 2, first: [{ name: "late" }, { name: "later" }] } });
  expect(found).toMatchObject({
    active: 5,
    ending_first: [{ name: "late" }, { name: "short" }, { name: "later" }, { name: "fine" }],
    phones_due: { count: 1, first: [{ name: "phone" }] },
  });
});

test("a phone whose certificate is not due needs nobody, and one that was revoked neither", async () => {
  const [phone, gone] = [await made("phone"), await made("gone")];
  await change(
    "UPDATE nodes SET phone = 'ios', renew_at = $1 WHERE org_id = $2",
    server.clock.ms + 1,
    org.id,
  );
  expect(await attention()).toMatchObject({ nodes: 2, active: 0, phones_due: none });
  server.clock.ms += 1;
  await call("DELETE", `nodes/${gone.id}/`);
  expect(await attention()).toMatchObject({ phones_due: { count: 1, first: [{ id: phone.id }] } });
});

const ruleOf = (port: number) => ({
  direction: "inbound",
  protocol: "tcp",
  ports: `${port}`,
  peer: { any: true },
  target: { any: true },
});

test("a node that is online and does not apply what it was sent is named after ten minutes, until it has applied it", async () => {
  const nodes = [await made("web"), await made("away"), await made("fine")];
  const [web] = nodes;
  if (web === undefined) throw new Error("No node");
  const first = web.answer.config.config_version;
  for (const node of nodes) await node.checkin({ config_version: first });
  expect((await call("POST", "firewall_rules/", ruleOf(8443))).status).toBe(201);
  const download = ({ id, token }: typeof web) =>
    server.send("GET", `/api/org/${org.slug}/nodes/${id}/download_config/`, { token });
  for (const node of nodes) await download(node);
  const sentAt = server.clock.ms;
  const next = await configVersion();
  const pass = async (minutes: number, version = first) => {
    server.clock.ms += minutes * 60_000;
    await web.checkin({ config_version: version });
    await nodes[2]?.checkin({ config_version: next });
    // A daemon asks for what it could not apply again and again.
    await download(web);
    await server.app.services.reports.stop();
    return attention();
  };
  expect(await pass(9)).toMatchObject({ not_applied: none });
  const { not_applied } = (await pass(2)) as { not_applied: { first: { since: string }[] } };
  expect(not_applied).toMatchObject({ count: 1, first: [{ id: web.id, name: "web" }] });
  const since = not_applied.first[0]?.since ?? "";
  expect(Math.abs(Date.parse(since) - sentAt)).toBeLessThan(1000);
  expect(await lateNodes()).toEqual({ web: since });
  expect(await pass(1, next)).toMatchObject({ not_applied: none });
  expect(await lateNodes()).toEqual({});
});

/** By name: since when nodes lack a configuration, as their list says. */
const lateNodes = async () => {
  const nodes = v.parse(
    v.array(v.object({ name: v.string(), not_applied_since: v.nullable(v.string()) })),
    (await call("GET", "nodes/")).json,
  );
  return Object.fromEntries(
    nodes.flatMap(({ name, not_applied_since: since }) => (since === null ? [] : [[name, since]])),
  );
};

test("a node that is online and fetches nothing is named ten minutes after the change, not after each one", async () => {
  const [web, fine] = [await made("web"), await made("fine")];
  let applied = web.answer.config.config_version;
  const first = applied;
  const minute = async (ms = 60_000) => {
    server.clock.ms += ms;
    await web.checkin({ config_version: first });
    await fine.checkin({ config_version: applied });
    await server.app.services.reports.stop();
  };
  await minute(0);
  let changedAt = 0;
  // Each minute something is saved, and the healthy node applies what was saved a minute ago.
  const save = async (port: number) => {
    applied = await configVersion();
    expect((await call("POST", "firewall_rules/", ruleOf(port))).status).toBe(201);
    changedAt ||= server.clock.ms;
    await minute();
  };
  for (let at = 0; at < 10; at++) {
    expect(await lateNodes()).toEqual({});
    await save(9000 + at);
  }
  await minute();
  const since = (await lateNodes())["web"] ?? "";
  expect(Date.parse(since) - changedAt).toBeWithin(0, 61_000);
  expect(Object.keys(await lateNodes())).toEqual(["web"]);
  expect(await attention()).toMatchObject({ not_applied: { count: 1, first: [{ name: "web", since }] } });
  // It has lacked the first of them all the time.
  await save(9010);
  expect(await lateNodes()).toEqual({ web: since });
  expect(await attention()).toMatchObject({ not_applied: { first: [{ since }] } });
  // One that is away takes it when it is back.
  server.clock.ms += onlineMs;
  expect(await lateNodes()).toEqual({});
});

test("engines with published vulnerabilities are counted, and the first are named with the version that fixes them", async () => {
  for (let at = 0; at < 22; at++) await made(`node-${at}`);
  await change("UPDATE nodes SET overlay_version = '1.9.5' WHERE org_id = $1", org.id);
  const { id } = await made("new");
  await change("UPDATE nodes SET overlay_version = '1.12.0' WHERE id = $1", id);
  const { vulnerable_engines: found } = (await attention()) as {
    vulnerable_engines: { count: number; first: unknown[] };
  };
  expect(found.count).toBe(22);
  expect(found.first).toHaveLength(20);
  expect(found.first[0]).toMatchObject({ name: "node-0", overlay_version: "1.9.5", fixed_in: "1.9.7" });
});

test("broken paths are shown by node: to administrators all of them, to members those of their own nodes", async () => {
  const [alpha, beta] = [await made("alpha"), await made("beta")];
  const broken = (peer: string) => ({ peer, path: "none", probe: "broken", loss: 1 });
  server.clock.ms += 30_000;
  const peers = [beta.ip, "10.9.0.1", "10.9.0.2", "10.9.0.3", "10.9.0.4"];
  await alpha.checkin({ paths: { whole: true, changed: peers.map(broken) } });
  await beta.checkin({ paths: { whole: true, changed: [broken(alpha.ip)] } });
  await server.app.services.pathReports.stop();
  await server.app.services.reports.stop();
  const ofBeta = { id: beta.id, name: "beta", peers: ["alpha"], peer_count: 1 };
  expect(await attention()).toMatchObject({
    broken_paths: { count: 2, first: [{ id: alpha.id, name: "alpha", peer_count: 5 }, ofBeta] },
  });
  const email = `member-of-${org.slug}@example.org`;
  const member = await server.person(email);
  await server.join(org, email, "member");
  expect(await attention(member)).toMatchObject({ broken_paths: none });
  await change(
    "UPDATE nodes SET owner_id = (SELECT id FROM users WHERE email = $1) WHERE id = $2",
    email,
    beta.id,
  );
  expect(await attention(member)).toMatchObject({ broken_paths: { count: 1, first: [ofBeta] } });
  // Alpha went away: one cause. What it reported before does not count, and beta, which does not reach it, is well.
  server.clock.ms += onlineMs;
  await beta.checkin();
  await server.app.services.reports.stop();
  expect(await attention()).toMatchObject({ online: 1, broken_paths: none });
});

const policy = `groups: {staff: {}, app: {}, db: {}}
rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: tcp, ports: 5432, peer: group:app, target: group:db}
tests:
  - deny: {from: group:staff, to: group:db, protocol: tcp, port: 5432}
  - accept: {from: group:app, to: group:db, protocol: tcp, port: 5432}
`;
const apply = async (file: string, more: object = {}) =>
  expect((await call("POST", "policy/apply/", { policy: file, prune: true, ...more })).json).toMatchObject({
    tests: { failing: [] },
  });
const failing = async () => {
  await checkPolicies(server.app.services);
  return ((await attention()) as { failing_tests: unknown }).failing_tests;
};
/** Registrations are not refused when they break a test. */
const intruder = async () =>
  made("laptop", {
    registration_token: await registrationToken(server, org, { groups: ["staff", "app"] }),
  });

test("tests of the policy that a registration breaks are counted, until they pass", async () => {
  await apply(policy);
  expect(await failing()).toBeNull();
  const laptop = await intruder();
  expect(await failing()).toEqual({ count: 1, all: 2 });
  expect((await call("PATCH", `nodes/${laptop.id}/`, { groups: ["staff"] })).status).toBe(200);
  expect(await failing()).toBeNull();
});

test("failing tests are not counted after they were rolled back with the policy", async () => {
  await apply(policy, { confirm: 300 });
  await intruder();
  expect(await failing()).toEqual({ count: 1, all: 2 });
  expect((await call("POST", "policy/revert/")).status).toBe(200);
  expect(await failing()).toBeNull();
});

test("the list of members counts the nodes of each, without revoked ones", async () => {
  const [one, two] = [await made("one"), await made("two")];
  await made("of-the-organization");
  const email = `owner-in-${org.slug}@example.org`;
  await server.person(email);
  await server.join(org, email, "member");
  for (const { id } of [one, two]) await call("POST", `nodes/${id}/transfer/`, { owner: email });
  const counted = async () =>
    v
      .parse(v.array(ListedMember), (await call("GET", "members/")).json)
      .map((member) => [member.email === email, member.node_count]);
  expect(await counted()).toEqual([
    [false, 0],
    [true, 2],
  ]);
  await call("DELETE", `nodes/${two.id}/`);
  expect(await counted()).toEqual([
    [false, 0],
    [true, 1],
  ]);
});

test("another organization's nodes are not shown, and its members are refused", async () => {
  await made("alpha");
  const stranger = await server.person(`stranger-to-${org.slug}@example.org`);
  const answer = await server.send("GET", `/api/org/${org.slug}/nodes/attention/`, { token: stranger });
  expect(answer.status).toBe(404);
});
