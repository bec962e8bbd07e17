// Drills on the control plane: which node is away, which nodes are told, and who lost whom.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { Drill } from "../../../src/api/drills/drills.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { CheckinAnswer } from "../../../src/protocol/checkin.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { listDrills, mergeLosses } from "../../../src/server/rollout/drill-report.ts";
import { createDrill, openDrills } from "../../../src/server/rollout/drills.ts";
import { makeLiveDrills } from "../../../src/server/rollout/live-drills.ts";
import { codeOf, registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { until } from "../../support/until.ts";

let server: TestServer;
let acme: Organization;
let owner: string;
let hub: RegisteredNode;
let web: RegisteredNode;
let db: RegisteredNode;

const version = "0.2.0";
const checkin = async (node: RegisteredNode, more: object = { drill: 0 }) =>
  v.parse(CheckinAnswer, (await node.checkin({ version, ...more })).json).drill;

beforeEach(async () => {
  server = await makeTestServer();
  acme = await server.organization("acme", "10.77.0.0/16");
  owner = await server.person("owner@example.org");
  await server.join(acme, "owner@example.org", "owner");
  hub = await registerNode(server, acme, "hub", { is_lighthouse: true, public_ip: "192.0.2.1" });
  web = await registerNode(server, acme, "web");
  db = await registerNode(server, acme, "db");
  for (const node of [hub, web, db]) await checkin(node);
  await server.app.services.reports.stop();
});
afterEach(() => server[Symbol.asyncDispose]());

const path = "/api/org/acme/drills/";
const send = (body: object) => server.send("POST", path, { token: owner, body });
const begin = async (body: object = {}) => {
  const answer = await send({ kind: "lighthouse-away", for_s: 15, ...body });
  if (answer.status !== 201) throw new Error(answer.text);
  // PostgreSQL tells its servers a moment later; nodes that wait are woken then.
  await until(async () => (await checkin(hub)) !== undefined);
  return v.parse(Drill, answer.json);
};
const latest = async () => {
  const [shown] = v.parse(v.array(Drill), (await server.send("GET", path, { token: owner })).json);
  if (shown === undefined) throw new Error("There is no drill");
  return shown;
};
const report = (node: RegisteredNode, body: object) =>
  server.send("POST", `/api/org/acme/nodes/${node.id}/drill_report/`, { token: node.token, body });
const types = async () =>
  (await server.db.all("SELECT type FROM events WHERE type LIKE 'drill.%' ORDER BY id", [])).map(
    (row) => row["type"],
  );

describe("a drill", () => {
  test("begins with a lighthouse that has just permitted updates in its first check-in", async () => {
    const roles = { is_lighthouse: true, public_ip: "192.0.2.2" };
    const second = await registerNode(server, acme, "hub2", { ...roles, version });
    await checkin(second, { overlay_version: "1.11.0", updates: { may: ["agent"], order: 0, zone: 0 } });
    expect((await send({ kind: "lighthouse-away", for_s: 15, nodes: [second.id] })).status).toBe(201);
  });

  test("is told to each node once, and not to an agent that knows none", async () => {
    await begin();
    const order = await checkin(hub);
    expect(order).toMatchObject({ kind: "lighthouse-away", dead: true });
    expect((order?.ends_in_ms ?? 0) - (order?.begins_in_ms ?? 0)).toBe(15_000);
    expect(await checkin(web)).not.toHaveProperty("dead");
    expect(await checkin(web, { drill: order?.order })).toBeUndefined();
    expect(await checkin(web, {})).toBeUndefined();
    server.clock.ms += 60_000;
    expect(await checkin(db)).toBeUndefined();
  });

  test("ends when all nodes have reported who lost whom, as one row for each pair", async () => {
    await begin();
    const { order = 0 } = (await checkin(hub)) ?? {};
    expect((await report(hub, { order, state: "began" })).status).toBe(204);
    server.clock.ms += 25_000;
    const lost = (peer: string) => [{ peer, from_ms: -300, until_ms: 15_200 }];
    expect((await report(web, { order, state: "ended", peers: 2, losses: lost(hub.ip) })).status).toBe(204);
    expect(await latest()).toMatchObject({ state: "reporting", silent: { count: 2, first: ["db", "hub"] } });
    await report(db, { order, state: "ended", peers: 1 });
    await report(hub, { order, state: "ended", peers: 1, losses: lost(web.ip) });
    expect(await latest()).toMatchObject({
      state: "ended",
      nodes: [{ node_name: "hub", state: "began" }],
      reported: 3,
      watched: 4,
      silent: { count: 0 },
      losses: [{ from_s: -0.3, until_s: 15.2 }],
    });
    expect(await types()).toEqual(["drill.began", "drill.ended"]);
    expect((await report(db, { order, state: "ended" })).status).toBe(409);
  });

  test("a refusal of the node is told, and nodes without a report are named in the end", async () => {
    await begin();
    const { order = 0 } = (await checkin(hub)) ?? {};
    await report(hub, { order, state: "refused", reason: "this machine has no nft" });
    await report(hub, { order, state: "ended", peers: 2 });
    expect(await openDrills(server.db, server.clock.ms)).toEqual(new Set([acme.id]));
    server.clock.ms += 90_000;
    expect((await openDrills(server.db, server.clock.ms)).size).toBe(0);
    expect(await latest()).toMatchObject({
      state: "ended",
      nodes: [{ state: "refused", reason: "this machine has no nft" }],
      silent: { count: 2, first: ["db", "web"] },
      losses: [],
    });
    server.clock.ms += 120_000;
    expect((await send({ kind: "lighthouse-away" })).text).toContain("hub does not check in now");
  });

  test("that is aborted is told to the nodes that have taken it, and the next one may begin", async () => {
    const { id } = await begin();
    const { order = 0 } = (await checkin(hub)) ?? {};
    const abort = () => server.send("POST", `${path}${id}/abort/`, { token: owner });
    expect((await abort()).status).toBe(200);
    const told = { order: order + 1, ends_in_ms: 0 };
    await until(async () => (await checkin(hub, { drill: order })) !== undefined);
    expect(await checkin(hub, { drill: order })).toMatchObject(told);
    expect(await checkin(hub, { drill: order + 1 })).toBeUndefined();
    expect(await checkin(web)).toBeUndefined();
    expect((await abort()).text).toContain(`Drill ${id} is over`);
    for (const node of [hub, web, db]) await report(node, { order, state: "ended", peers: 1 });
    expect(await latest()).toMatchObject({ state: "ended", aborted_at: expect.any(String), reported: 3 });
    expect(await types()).toEqual(["drill.began", "drill.aborted", "drill.ended"]);
    await begin();
    expect((await checkin(hub))?.order).toBeGreaterThan(order + 1);
  });

  test("without the control plane cannot be aborted, and names the nodes that refuse it", async () => {
    const { id } = await begin({ kind: "control-plane-away" });
    const { order = 0 } = (await checkin(web)) ?? {};
    const refused = await server.send("POST", `${path}${id}/abort/`, { token: owner });
    expect(codeOf(refused)).toEqual([409, "conflict"]);
    expect(refused.text).toContain("Nodes cannot be told");
    await report(web, { order, state: "refused", reason: "drills took too much of its time" });
    const nodes = [{ node_name: "web", state: "refused", reason: "drills took too much of its time" }];
    expect(await latest()).toMatchObject({ nodes });
  });

  test("there is one at a time, of nodes with the role that check in", async () => {
    const refusal = async (body: object) => (await send({ kind: "lighthouse-away", ...body })).text;
    expect(await refusal({ kind: "relay-away", nodes: [db.id] })).toContain("Name nodes that are a relay");
    expect(await refusal({ nodes: [web.id] })).toContain("Name nodes that are a lighthouse: hub");
    expect(await refusal({ kind: "control-plane-away", nodes: [hub.id] })).toContain("name none");
    expect((await send({ kind: "lighthouse-away", for_s: 601 })).status).toBe(400);
    await registerNode(server, acme, "hub-2", { is_lighthouse: true, public_ip: "192.0.2.2" });
    expect(await refusal({})).toContain("There are several: hub, hub-2");
    await begin({ nodes: [hub.id] });
    expect(await refusal({ nodes: [hub.id] })).toContain("is under way");
    // Not by a member, and not by a service token.
    const member = await server.person("member@example.org");
    await server.join(acme, "member@example.org", "member");
    const body = { kind: "control-plane-away" };
    expect((await server.send("POST", path, { token: member, body })).status).toBe(403);
  });

  test("is refused until the clock of the control plane, which was set back, is past the last one", async () => {
    await begin({ kind: "control-plane-away" });
    await server.db.write((tx) => tx.run("UPDATE drills SET ended_at = 1"));
    server.clock.ms -= 3_600_000;
    expect((await send({ kind: "control-plane-away" })).text).toContain("was set back since the last drill");
    server.clock.ms += 3_600_001;
    expect((await send({ kind: "control-plane-away" })).status).toBe(201);
  });

  test("an agent that is too old is not taken away, and named", async () => {
    await hub.checkin({ version: "0.1.0" });
    await server.app.services.reports.stop();
    expect((await send({ kind: "lighthouse-away" })).text).toContain("The agent of hub is too old");
    expect((await begin({ kind: "control-plane-away" })).too_old).toEqual({ count: 1, first: ["hub"] });
  });

  test("the last 20 are shown", async () => {
    for (let count = 0; count < 23; count++) {
      await createDrill(
        server.app.services,
        acme,
        { kind: "lighthouse-away", nodes: [], for_s: 15 },
        operator,
      );
      server.clock.ms += 120_000;
      for (const node of [hub, web, db]) await checkin(node);
      await server.app.services.reports.stop();
    }
    expect((await listDrills(server.app.services, acme, {})).length).toBe(20);
  });

  test("takes 10 minutes at once and then a tenth of the time, whoever begins it", async () => {
    const { services } = server.app;
    const forS = 10;
    const began = server.clock.ms;
    let taken = 0;
    let refused = "";
    for (let count = 0; count < 200; count++) {
      try {
        const request = { kind: "control-plane-away" as const, nodes: [], for_s: forS };
        await createDrill(services, acme, request, operator);
        taken += forS * 1000;
      } catch (error) {
        refused = String(error);
      }
      await server.db.write((tx) => tx.run("UPDATE drills SET ended_at = 1 WHERE ended_at IS NULL"));
      server.clock.ms += 30_000;
    }
    const passed = server.clock.ms - began;
    expect(refused).toContain("Drills took too much of the time");
    expect(taken).toBeLessThanOrEqual(605_000 + passed / 10);
    expect(taken).toBeGreaterThan(passed / 20);
    expect(await server.db.get("SELECT count(*) AS n FROM drills", [])).toMatchObject({ n: 60 });
    // A day later all of it may be taken again, by one.
    server.clock.ms += 86_400_000;
    for (const node of [hub, web, db]) await checkin(node);
    await server.app.services.reports.stop();
    const longest = { kind: "lighthouse-away" as const, nodes: [], for_s: 600 };
    expect((await createDrill(services, acme, longest, operator)).for_s).toBe(600);
  });
});

test("a reading of drills that is answered late does not replace what a later one has found", async () => {
  const wakes: ((payload: string) => void)[] = [];
  /** The readings that have their rows, and are not answered yet. */
  const held: (() => void)[] = [];
  const slow: typeof server.db = Object.assign(Object.create(server.db), {
    listen: (_: string, wake: (payload: string) => void) => wakes.push(wake),
    async all(...query: Parameters<typeof server.db.all>) {
      const rows = await server.db.all(...query);
      await new Promise<void>((resolve) => held.push(resolve));
      return rows;
    },
  });
  const { system } = server.app.services;
  const live = makeLiveDrills({ db: slow, system }, { wakeOrganization: () => undefined });
  const release = async () => {
    await until(() => held.length > 0);
    // The latest first.
    for (; held.length > 0; await Bun.sleep(20)) held.pop()?.();
  };
  const changed = () => wakes.forEach((wake) => wake(String(acme.id)));
  await release();
  const { id } = await begin();
  const order = (await checkin(hub))?.order;
  changed();
  await until(() => held.length > 0);
  await server.send("POST", `${path}${id}/abort/`, { token: owner });
  changed();
  await Bun.sleep(50);
  await release();
  expect(live.orderFor(acme.id, hub.id, order)).toMatchObject({ ends_in_ms: 0 });
});

test("two losses of a pair stay two; what both ends saw of one is its whole time", () => {
  const of = (nodeId: number, peer: number, ...times: [number, number | null][]) => ({
    nodeId,
    nodeName: `n${nodeId}`,
    losses: times.map(([fromMs, untilMs]) => ({ peer, name: `n${peer}`, fromMs, untilMs })),
  });
  const pairs = mergeLosses([
    of(1, 2, [0, 5000], [9000, 12_000]),
    of(2, 1, [500, 6000]),
    of(3, 1, [100, null]),
  ]);
  expect(pairs.map(({ node, peer, from_s, until_s }) => [node, peer, from_s, until_s])).toEqual([
    [3, 1, 0.1, null],
    [1, 2, 0, 6],
    [1, 2, 9, 12],
  ]);
  // What one end saw as two, the other end saw as one.
  const joined = mergeLosses([of(1, 2, [0, 2000], [5000, 7000]), of(2, 1, [1000, 6000])]);
  expect(joined.map(({ node, peer, from_s, until_s }) => [node, peer, from_s, until_s])).toEqual([
    [1, 2, 0, 7],
  ]);
});
