// Settings of an organization that go through rings: which nodes are sent which, and what the organization has at the end.

import { afterEach, beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { Rollout } from "../../../src/api/rollouts.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { realSystem } from "../../../src/base/system.ts";
import { SentSettings } from "../../../src/protocol/updates/sent-settings.ts";
import { codeOf, downloadOf, registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { makeFleet, runRollout, type Bot, type Fault } from "../../support/rollout-fleet.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let acme: Organization;
let owner: string;
const watchS = 60;
const before = { tun: { mtu: 1400 }, logging: { level: "warning" } };
const after = { tun: { mtu: 1280 }, preferred_ranges: ["192.168.1.0/24"] };

beforeEach(async () => {
  // The test takes the turns, beside no loop of the server.
  const sleep = (ms: number, signal?: AbortSignal) => realSystem().sleep(ms < 1000 ? ms : 3_600_000, signal);
  server = await makeTestServer({ network: { sleep } });
  acme = await server.organization("acme", "10.77.0.0/16");
  owner = await server.person("owner@example.org");
  await server.join(acme, "owner@example.org", "owner");
  expect((await putOverrides(before)).status).toBe(200);
});
afterEach(() => server[Symbol.asyncDispose]());

const putOverrides = (overrides: object) =>
  server.send("PATCH", "/api/org/acme/", { token: owner, body: { config_overrides: overrides } });
const overrides = async () =>
  v.parse(
    v.object({ config_overrides: v.unknown() }),
    (await server.send("GET", "/api/org/acme/", { token: owner })).json,
  ).config_overrides;
const create = (body: object = { settings: after }) =>
  server.send("POST", "/api/org/acme/rollouts/", { token: owner, body: { watch_s: watchS, ...body } });
async function start(): Promise<Rollout> {
  const answer = await create();
  if (answer.status !== 201) throw new Error(answer.text);
  return v.parse(Rollout, answer.json);
}

const Config = v.looseObject({
  tun: v.looseObject({ mtu: v.number() }),
  logging: v.looseObject({ level: v.string() }),
  rollout: v.optional(SentSettings),
});
const configOf = async (node: RegisteredNode) =>
  v.parse(Config, Bun.YAML.parse(downloadOf(await node.download()).files["config.yml"]));

/** The nodes that were told and have not gone back, and those whose config.yml has the new settings beside the former ones. */
async function whoHas(bots: readonly Bot[]) {
  const told = await server.db.all(
    "SELECT node_id FROM rollout_nodes WHERE state IN ('told', 'applied', 'passed', 'failed', 'returning')",
  );
  const sent: number[] = [];
  for (const { node } of bots) {
    const { tun, rollout } = await configOf(node);
    expect(tun.mtu).toBe(1400);
    if (rollout === undefined) continue;
    sent.push(node.id);
    expect(rollout.sections).toMatchObject({
      tun: { mtu: 1280 },
      logging: { level: "info" },
      preferred_ranges: ["192.168.1.0/24"],
    });
    expect(Object.keys(rollout.sections)).toHaveLength(3);
  }
  return { told: new Set(told.map((row) => Number(row["node_id"]))), sent: new Set(sent) };
}

test("nodes are sent them ring by ring, and at the end the organization has them, also for older agents", async () => {
  const bots = await makeFleet(server, acme, 12);
  const old = await registerNode(server, acme, "old");
  await old.checkin();
  const { settings, rings } = await start();
  expect(settings).toEqual(after);
  expect(rings.map(({ waiting }) => waiting)).toEqual([1, 2, 9]);
  const most = new Map<number, number>();
  const done = await runRollout(
    { server, org: acme, bots, seed: 1, watchS },
    {
      async onTick({ ring, state }) {
        if (state !== "running") return;
        const { told, sent } = await whoHas(bots);
        expect(sent).toEqual(told);
        most.set(ring, Math.max(most.get(ring) ?? 0, sent.size));
        expect(await overrides()).toEqual(before);
      },
    },
  );
  expect(done).toMatchObject({ state: "passed", reason: "" });
  expect([...most.values()]).toEqual([1, 3, 12]);
  expect(await overrides()).toEqual(after);
  for (const node of [old, ...bots.map((bot) => bot.node)]) {
    const { tun, logging, rollout } = await configOf(node);
    expect([tun.mtu, logging.level, rollout]).toEqual([1280, "info", undefined]);
  }
  const left = await server.db.get("SELECT count(*) AS n FROM nodes WHERE update_order IS NOT NULL");
  expect(Number(left?.["n"])).toBe(0);
  const event = await server.db.get(
    "SELECT after FROM events WHERE type = 'organization.updated' ORDER BY id DESC LIMIT 1",
  );
  expect(JSON.parse(String(event?.["after"]))).toEqual({ config_overrides: after });
});

for (const fault of ["fails", "mute", "lost"] satisfies Fault[])
  test(`harmful ones (${fault}) are sent to one node, and then no longer`, async () => {
    const bots = await makeFleet(server, acme, 12);
    await start();
    let most = 0;
    const done = await runRollout(
      { server, org: acme, bots, fault, seed: 3, watchS },
      {
        async onTick({ state }) {
          if (state === "running") most = Math.max(most, (await whoHas(bots)).sent.size);
        },
      },
    );
    expect(done).toMatchObject({ state: "stopped", ring: 1 });
    expect(most).toBe(1);
    expect(await overrides()).toEqual(before);
    expect((await whoHas(bots)).sent.size).toBe(0);
  });

test("an administrator who ends it takes them from all rings", async () => {
  const bots = await makeFleet(server, acme, 12);
  const { id } = await start();
  await runRollout(
    { server, org: acme, bots, seed: 5, watchS },
    {
      async onTick({ ring, state }) {
        if (ring !== 3 || state !== "running") return;
        expect((await whoHas(bots)).sent.size).toBeGreaterThan(2);
        const steer = `/api/org/acme/rollouts/${id}/steer/`;
        await server.send("POST", steer, { token: owner, body: { action: "abort" } });
      },
    },
  );
  expect((await whoHas(bots)).sent.size).toBe(0);
  expect(await overrides()).toEqual(before);
  expect((await putOverrides(after)).status).toBe(200);
});

test("what is refused: beside versions, to some groups, what is so already, and a change by hand meanwhile", async () => {
  expect(codeOf(await create())).toEqual([409, "conflict"]);
  await makeFleet(server, acme, 3);
  expect(codeOf(await create({ settings: after, engine: "1.12.0" }))).toEqual([400, "validation_failed"]);
  expect(codeOf(await create({ settings: after, groups: ["web"] }))).toEqual([400, "validation_failed"]);
  expect(codeOf(await create({ settings: { tun: { mtu: 1 } } }))).toEqual([400, "validation_failed"]);
  expect(codeOf(await create({ settings: before }))).toEqual([409, "conflict"]);
  const { id } = await start();
  const refused = await putOverrides({});
  expect(codeOf(refused)).toEqual([409, "conflict"]);
  expect(refused.text).toContain(`Rollout ${id} is under way`);
});

test("a port of lighthouses and relays that other nodes look for is refused, and one of other nodes alone is not", async () => {
  await makeFleet(server, acme, 3, (at) => (at === 0 ? { is_lighthouse: true, public_ip: "192.0.2.1" } : {}));
  const refused = await create({ settings: { ...after, listen: { port: 5000 } } });
  expect(codeOf(refused)).toEqual([409, "conflict"]);
  expect(refused.text).toContain("Other nodes look for node0 at its UDP port");
  expect(refused.text).toContain("from 4242 to 5000");
  expect(refused.text).toContain("agent admin node update acme node0 --external-port N");
  expect(await overrides()).toEqual(before);
  // This one has a port of its own, whatever the organization says.
  const nodes = await server.send("GET", "/api/org/acme/nodes/", { token: owner });
  const found = v.parse(v.array(v.object({ id: v.number(), name: v.string() })), nodes.json);
  const id = found.find(({ name }) => name === "node0")?.id;
  const own = { config_overrides: { listen: { port: 4242 } } };
  expect((await server.send("PATCH", `/api/org/acme/nodes/${id}/`, { token: owner, body: own })).status).toBe(
    200,
  );
  expect((await create({ settings: { ...after, listen: { port: 5000 } } })).status).toBe(201);
});
