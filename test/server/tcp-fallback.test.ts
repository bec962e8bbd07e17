// Which lighthouses and relays nodes are told to be reached by TCP: those whose agents say so, and those of the control plane's own
// machine. On SQLite alone: several servers on PostgreSQL do not offer their own listener.

import { afterAll, expect, test } from "bun:test";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import type { Organization } from "../../src/api/organizations.ts";
import { NodeConfig } from "../../src/protocol/organization-files.ts";
import { makePlaneFallback, storeTcp } from "../../src/server/nodes/contact/plane-fallback.ts";
import { checkinOf, downloadOf, registerNode, type RegisteredNode } from "../support/nodes.ts";
import { useNumbered } from "../support/numbered.ts";
import { onPostgres, type TestServer } from "../support/server.ts";
import { temporaryDirectory } from "../support/temporary.ts";

let server: TestServer;
let org: Organization;
const { call, callNode, configVersion } = useNumbered((made) => ({ server, org } = made));
const directory = temporaryDirectory();
afterAll(() => directory[Symbol.dispose]());

const hubFields = { is_lighthouse: true, is_relay: true, public_ip: "192.0.2.1" };
const configOf = async (node: RegisteredNode) =>
  v.parse(NodeConfig, JSON.parse(downloadOf(await node.download()).files["node-config.json"]));
const waysOf = async (node: RegisteredNode) => (await configOf(node)).tcp;

/** As the agent of this machine keeps it. */
async function onThisMachine(node: RegisteredNode, change: Partial<NodeConfig> = {}): Promise<string> {
  const root = join(directory.path, org.slug);
  mkdirSync(join(root, org.slug), { recursive: true });
  const { files } = downloadOf(await node.download());
  const config = v.parse(NodeConfig, JSON.parse(files["node-config.json"]));
  writeFileSync(join(root, org.slug, "node-config.json"), JSON.stringify({ ...config, ...change }));
  writeFileSync(join(root, org.slug, "config.yml"), files["config.yml"]);
  return root;
}

test("the port that a lighthouse's agent reports reaches all other nodes, and no lighthouse", async () => {
  const hub = await registerNode(server, org, "hub", hubFields);
  const second = await registerNode(server, org, "second", {
    ...hubFields,
    public_ip: "2001:db8::2",
    external_port: 4300,
  });
  const web = await registerNode(server, org, "web");
  expect(await waysOf(web)).toBeUndefined();
  const before = await configVersion();
  expect(checkinOf(await hub.checkin({ tcp: 443 })).config_changed).toBe(true);
  await second.checkin({ tcp: 8443 });
  expect(await configVersion()).toBe(before + 2);
  expect(await waysOf(web)).toEqual({
    [hub.ip]: { at: "192.0.2.1:443", port: 4242 },
    [second.ip]: { at: "[2001:db8::2]:8443", port: 4300 },
  });
  expect(await waysOf(second)).toBeUndefined();
  // The same report changes nothing.
  await hub.checkin({ tcp: 443 });
  expect(await configVersion()).toBe(before + 2);
  server.clock.ms += 60_000;
  await hub.checkin({ tcp: 0 });
  expect(Object.keys((await waysOf(web)) ?? {})).toEqual([second.ip]);
  // Without the field, as former agents send it, the last report stays.
  await second.checkin();
  expect(Object.keys((await waysOf(web)) ?? {})).toEqual([second.ip]);
});

test("what a node that is neither lighthouse nor relay reports counts nothing, nor one that changes its mind all the time", async () => {
  const hub = await registerNode(server, org, "hub", hubFields);
  const web = await registerNode(server, org, "web");
  const before = await configVersion();
  await web.checkin({ tcp: 443 });
  expect(await configVersion()).toBe(before);
  for (const tcp of [443, 0, 443, 0, 8443]) await hub.checkin({ tcp });
  expect(await configVersion()).toBe(before + 1);
});

test("a report that is no port changes nothing", async () => {
  const hub = await registerNode(server, org, "hub", hubFields);
  for (const tcp of [-1, 65_536, 1.5, "443"]) expect((await hub.checkin({ tcp })).status).toBe(400);
});

test("a port in the overrides of a lighthouse, else of its organization, is the one that is named", async () => {
  const hub = await registerNode(server, org, "hub", hubFields);
  const web = await registerNode(server, org, "web");
  await hub.checkin({ tcp: 443 });
  const portOf = async () => (await waysOf(web))?.[hub.ip]?.port;
  expect(await portOf()).toBe(4242);
  const settings = { config_overrides: { listen: { port: 4400 } } };
  expect((await call("PATCH", "", settings)).status).toBe(200);
  expect(await portOf()).toBe(4400);
  const before = await configVersion();
  expect((await callNode("PATCH", hub, "", { config_overrides: { listen: { port: 4500 } } })).status).toBe(
    200,
  );
  expect(await portOf()).toBe(4500);
  expect(await configVersion()).toBe(before + 1);
});

test("where a lighthouse is reached by TCP changes no config.yml, so none is rendered again", async () => {
  const hub = await registerNode(server, org, "hub", hubFields);
  const web = await registerNode(server, org, "web");
  await web.download();
  const rendered = () =>
    server.app.services.meters.samples().find(({ name }) => name === "configurations_rendered_total")
      ?.values[0]?.value;
  const before = rendered();
  await hub.checkin({ tcp: 443 });
  expect(await waysOf(web)).toEqual({ [hub.ip]: { at: "192.0.2.1:443", port: 4242 } });
  expect(rendered()).toBe(before);
});

test("a control plane on PostgreSQL takes back what one on SQLite offered, and offers nothing", async () => {
  const hub = await registerNode(server, org, "hub", hubFields);
  const web = await registerNode(server, org, "web");
  // As a backup that was made on SQLite and restored there brings it.
  await storeTcp(server.db, { id: hub.id, orgId: org.id }, "plane");
  const fallback = makePlaneFallback({ db: server.db, machineRoot: await onThisMachine(hub) });
  expect(Object.keys((await waysOf(web)) ?? {})).toEqual([hub.ip]);
  await fallback.look();
  expect(await waysOf(web)).toEqual(onPostgres ? undefined : { [hub.ip]: { at: "plane", port: 4242 } });
  expect(fallback.engineAt(4242)).toEqual(onPostgres ? undefined : {});
});

// With PostgreSQL the public URL may lead to a control plane on another machine, so no listener offers it.
test.skipIf(onPostgres)(
  "a lighthouse of the control plane's own machine is reached through its listener, until it is gone",
  async () => {
    const hub = await registerNode(server, org, "hub", { ...hubFields, external_port: 4300 });
    const web = await registerNode(server, org, "web");
    const machineRoot = await onThisMachine(hub);
    const fallback = makePlaneFallback({ db: server.db, machineRoot });
    const first = await configVersion();
    await fallback.look();
    expect(await configVersion()).toBe(first + 1);
    expect(fallback.engineAt(4300)).toEqual({});
    expect([4242, 22, 0].map(fallback.engineAt)).toEqual([undefined, undefined, undefined]);
    expect(await waysOf(web)).toEqual({ [hub.ip]: { at: "plane", port: 4300 } });
    // The engine of an organization whose overrides name an address listens there alone.
    const overrides = (listen: object) => call("PATCH", "", { config_overrides: { listen } });
    expect((await overrides({ host: "192.0.2.1", port: 53 })).status).toBe(200);
    await fallback.look();
    // Only what the agent of this machine has taken counts: no administrator opens another port of the machine.
    expect(fallback.engineAt(53)).toBeUndefined();
    expect(fallback.engineAt(4300)).toEqual({});
    expect((await overrides({ host: "192.0.2.1" })).status).toBe(200);
    await onThisMachine(hub);
    await fallback.look();
    expect(fallback.engineAt(4300)).toEqual({ host: "192.0.2.1" });
    expect((await overrides({})).status).toBe(200);
    await onThisMachine(hub);
    // A second look changes nothing, and neither does the agent's report.
    const before = await configVersion();
    await fallback.look();
    await hub.checkin({ tcp: 0 });
    expect(await configVersion()).toBe(before);

    expect((await callNode("PATCH", hub, "", { is_lighthouse: false, is_relay: false })).status).toBe(200);
    await fallback.look();
    expect(fallback.engineAt(4300)).toBeUndefined();
    expect(await waysOf(web)).toBeUndefined();
    expect((await callNode("PATCH", hub, "", { is_relay: true })).status).toBe(200);
    await fallback.look();
    expect(Object.keys((await waysOf(web)) ?? {})).toEqual([hub.ip]);
    rmSync(machineRoot, { recursive: true });
    await fallback.look();
    expect(await waysOf(web)).toBeUndefined();
  },
);

test.skipIf(onPostgres)("a node of another control plane, and damaged files, open nothing", async () => {
  const hub = await registerNode(server, org, "hub", hubFields);
  const { order_key } = await configOf(hub);
  if (order_key === undefined) throw new Error("No order key");
  const foreign = { order_key: { ...order_key, x: "A".repeat(43) } };
  const machineRoot = await onThisMachine(hub, foreign);
  const fallback = makePlaneFallback({ db: server.db, machineRoot });
  await fallback.look();
  expect(fallback.engineAt(4242)).toBeUndefined();
  writeFileSync(join(machineRoot, org.slug, "node-config.json"), "{");
  await fallback.look();
  expect(fallback.engineAt(4242)).toBeUndefined();
  // Without a place to look at, as with `--tcp-fallback off`, what was offered ends.
  await onThisMachine(hub);
  await fallback.look();
  expect(fallback.engineAt(4242)).toEqual({});
  const off = makePlaneFallback({ db: server.db });
  await off.look();
  expect(await server.db.all("SELECT id FROM nodes WHERE tcp = 'plane'", [])).toEqual([]);
});
