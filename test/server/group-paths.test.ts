// Nodes and paths summed by group, for a map of many nodes, and their history.

import { expect, test } from "bun:test";
import * as v from "valibot";
import type { Organization } from "../../src/api/organizations.ts";
import { pathsApi } from "../../src/api/paths/paths.ts";
import { checkinOf, registerNode, type RegisteredNode } from "../support/nodes.ts";
import { useNumbered } from "../support/numbered.ts";
import type { TestServer } from "../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;
useNumbered((made) => ({ server, org, admin } = made));

const send = (method: string, path: string, body?: unknown, token = admin) =>
  server.send(method, `/api/org/${org.slug}/${path}`, { token, ...(body === undefined ? {} : { body }) });
async function groups(token = admin) {
  const answer = await send("GET", "paths/groups/", undefined, token);
  expect(answer.status).toBe(200);
  return v.parse(pathsApi.groups.answers[200].schema, answer.json);
}
async function between(query: string, token = admin) {
  const { json } = await send("GET", `paths/between/?${query}`, undefined, token);
  return v.parse(pathsApi.between.answers[200].schema, json);
}
async function node(name: string, ...of: string[]): Promise<RegisteredNode> {
  const made = await registerNode(server, org, name);
  if (of.length > 0) expect((await send("PATCH", `nodes/${made.id}/`, { groups: of })).status).toBe(200);
  return made;
}
async function report(from: RegisteredNode, ...changed: object[]): Promise<void> {
  server.clock.ms += 15_000;
  await from.checkin({ paths: { whole: true, changed } });
  await server.app.services.pathReports.stop();
  await server.app.services.reports.stop();
}
const direct = (peer: RegisteredNode, rtt_ms: number) => ({
  peer: peer.ip,
  path: "direct",
  remote: "192.0.2.7:4242",
  probe: "answers",
  rtt_ms,
  loss: 0,
});
const relayed = (peer: RegisteredNode, rtt_ms: number) => ({
  peer: peer.ip,
  path: "relayed",
  relays: ["lh1"],
  probe: "answers",
  rtt_ms,
  loss: 0,
});
const broken = (peer: RegisteredNode) => ({ peer: peer.ip, path: "none", probe: "broken", loss: 1 });

/** web-1 and web-2, app, and one node without a group. */
async function scene() {
  const [one, two, app, alone] = [
    await node("web-1", "web", "eu"),
    await node("web-2", "web"),
    await node("app-1", "app", "web"),
    await node("alone"),
  ];
  await report(one, direct(two, 10), direct(app, 20));
  await report(two, relayed(app, 30), direct(one, 12));
  await report(app, broken(one), direct(two, 40));
  return { one, two, app, alone };
}

test("paths are summed by the first group of their nodes; a pair counts once, with the worse of both reports", async () => {
  const { one, two, app } = await scene();
  const { totals, groups: found, pairs, broken: first, relayed: over, left_out } = await groups();
  expect(over).toMatchObject([{ node_name: "web-2", peer_name: "app-1", kind: "relayed", rtt_ms: 40 }]);
  expect(totals).toEqual({
    nodes: 4,
    online: 3,
    current: 0,
    cut: 0,
    direct: 1,
    relayed: 1,
    broken: 1,
    rtt_ms_median: 12,
    rtt_ms_95: 40,
  });
  const none = { well: 0, relayed: 0, broken: 0, away: 0, hubs_away: 0, lighthouses_away: 0, hubs: 0 };
  const group = (name: string | null, nodes: number, more: object) => ({ name, nodes, ...none, ...more });
  expect(found).toEqual([
    group("app", 1, { broken: 1, paths: { direct: 0, relayed: 1, broken: 1 } }),
    group("web", 2, { well: 1, relayed: 1, paths: { direct: 1, relayed: 1, broken: 1 } }),
    group(null, 1, { away: 1, paths: { direct: 0, relayed: 0, broken: 0 } }),
  ] as typeof found);
  expect(pairs).toEqual([
    { from: "app", to: "web", direct: 0, relayed: 1, broken: 1, rtt_ms_median: 40, rtt_ms_95: 40 },
    { from: "web", to: "web", direct: 1, relayed: 0, broken: 0, rtt_ms_median: 12, rtt_ms_95: 12 },
  ]);
  expect(left_out).toEqual({ groups: 0, nodes: 0 });
  expect(first).toEqual([
    {
      node: app.id,
      node_name: "app-1",
      group: "app",
      peer: one.id,
      peer_name: "web-1",
      peer_group: "web",
      kind: "broken",
      rtt_ms: null,
    },
  ]);
  const pair = await between("from=web&to=app");
  expect(pair).toMatchObject({ from: "app", to: "web", direct: 0, relayed: 1, broken: 1, rtt_ms_median: 40 });
  expect(pair.worst.map(({ kind, rtt_ms }) => [kind, rtt_ms])).toEqual([
    ["broken", null],
    ["relayed", 40],
  ]);
  expect(pair.round_trips.filter(({ paths }) => paths > 0)).toEqual([{ up_to_ms: 40, paths: 1 }]);
  expect(await between("to=web")).toMatchObject({ from: "web", to: null, direct: 0, worst: [] });
  // What it reported before it went away does not count.
  server.clock.ms += 200_000;
  for (const each of [one, two]) await each.checkin({});
  await server.app.services.reports.stop();
  expect((await groups()).totals).toMatchObject({ online: 2, direct: 2, relayed: 1, broken: 0 });
});

test("lighthouses and relays that are away are counted, lighthouses also on their own", async () => {
  const public_ip = "192.0.2.1";
  await registerNode(server, org, "lh", { is_lighthouse: true, public_ip });
  await registerNode(server, org, "hub", { is_lighthouse: true, is_relay: true, public_ip });
  await registerNode(server, org, "relay", { is_relay: true, public_ip });
  server.clock.ms += 200_000;
  expect((await groups()).groups).toMatchObject([{ away: 3, hubs_away: 3, lighthouses_away: 2 }]);
});

test("of a broken path, the node that reports it is named first, also if its peer reports another broken path", async () => {
  const [one, two, app] = [await node("web-1"), await node("web-2"), await node("app-1")];
  await report(one, broken(two), direct(app, 20));
  await report(two, direct(one, 10));
  await report(app, broken(one));
  const { broken: named } = await groups();
  expect(named.map(({ node_name, peer_name }) => [node_name, peer_name])).toEqual([
    ["web-1", "web-2"],
    ["app-1", "web-1"],
  ]);
});

test("a path over relays that are all away does not count, until one of them is back", async () => {
  const [one, two, relay] = [await node("web-1", "web"), await node("app-1", "app"), await node("hub")];
  await relay.checkin({});
  await report(one, { ...relayed(two, 30), relays: [relay.ip, "gone"] });
  await report(two, { ...relayed(one, 30), relays: ["hub"] });
  // A relay that is no node may be anywhere.
  const counted = async () => {
    const { totals, groups: found } = await groups();
    return [totals.relayed, found.map(({ name, well, relayed: over }) => [name, well, over])];
  };
  server.clock.ms += 200_000;
  for (const each of [one, two]) await each.checkin({});
  await server.app.services.reports.stop();
  expect(await counted()).toEqual([
    1,
    [
      [null, 0, 0],
      ["app", 1, 0],
      ["web", 0, 1],
    ],
  ]);
  await report(one, { ...relayed(two, 30), relays: [relay.ip] });
  server.clock.ms += 16_000;
  await two.checkin({});
  await server.app.services.reports.stop();
  expect((await groups()).totals).toMatchObject({ relayed: 0, cut: 1 });
  await relay.checkin({});
  await server.app.services.reports.stop();
  server.clock.ms += 16_000;
  expect((await groups()).totals).toMatchObject({ relayed: 1, cut: 0 });
});

test("what does not reach a node that is away is not broken, and nodes with their newest configuration are counted", async () => {
  const { one, two, app } = await scene();
  expect((await groups()).totals).toMatchObject({ broken: 1, current: 0 });
  server.clock.ms += 200_000;
  const { config_version } = checkinOf(await app.checkin({}));
  await app.checkin({ config_version });
  await two.checkin({});
  await server.app.services.reports.stop();
  // web-1, which app-1 does not reach, is away.
  expect((await groups()).totals).toMatchObject({ online: 2, broken: 0, current: 1 });
  await one.checkin({});
  await server.app.services.reports.stop();
  server.clock.ms += 16_000;
  expect((await groups()).totals).toMatchObject({ online: 3, broken: 1 });
});

test("members get the sums of their own nodes' paths, and the states of all nodes", async () => {
  const { one } = await scene();
  const email = `member-of-${org.slug}@example.org`;
  const member = await server.person(email);
  await server.join(org, email, "member");
  const kinds = { direct: 0, relayed: 0, broken: 0 };
  expect((await groups(member)).totals).toMatchObject({ nodes: 4, online: 3, ...kinds });
  expect((await groups(member)).broken).toEqual([]);
  await send("POST", `nodes/${one.id}/transfer/`, { owner: email });
  server.clock.ms += 16_000;
  expect((await groups(member)).totals).toMatchObject({ nodes: 4, direct: 2, relayed: 0, broken: 0 });
  expect((await groups()).totals).toMatchObject({ direct: 1, relayed: 1, broken: 1 });
  expect(await between("from=app&to=web", member)).toMatchObject({ direct: 1, broken: 0 });
  // A program sees what its role does; another organization sees nothing of it.
  const other = await server.organization(`other-${org.slug}`);
  const { json } = await server.send("GET", `/api/org/${other.slug}/paths/groups/`, { token: admin });
  expect(json).not.toMatchObject({ totals: { nodes: 4 } });
});

test("of more groups than one answer has, those that are worst off are shown, and the others counted", async () => {
  const { app, one } = await scene();
  await server.db.write(async (tx) => {
    for (let at = 0; at < 70; at++)
      await tx.run(
        `INSERT INTO nodes (org_id, name, ip, state, groups, created_at, registered_at) VALUES ($1, $2, $3, 'active', $4, 1, 1)`,
        [org.id, `many-${at}`, `10.77.200.${at}`, JSON.stringify([`group-${at}`])],
      );
  });
  server.clock.ms += 16_000;
  await report(app, broken(one));
  const { totals, groups: found, left_out, pairs } = await groups();
  expect(found.slice(0, 3).map(({ name }) => name)).toEqual(["app", "web", "group-0"]);
  expect(found).toHaveLength(60);
  expect(totals.nodes).toBe(74);
  expect(left_out).toEqual({ groups: 13, nodes: 74 - found.reduce((sum, { nodes }) => sum + nodes, 0) });
  const names = found.map(({ name }) => name);
  expect(pairs.every(({ from, to }) => names.includes(from) && names.includes(to))).toBe(true);
});
