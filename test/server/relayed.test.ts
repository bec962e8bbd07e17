// What relays forward for others, month by month, and the limit that pauses them.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { RelayedAnswer } from "../../src/protocol/traffic-reports.ts";
import { writeMetrics } from "../../src/server/metrics/metrics.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { Relay } from "../../src/api/paths/relays.ts";
import { checkinOf, codeOf, downloadOf, registerNode, type RegisteredNode } from "../support/nodes.ts";
import { useNumbered } from "../support/numbered.ts";
import type { TestServer } from "../support/server.ts";

let server: TestServer;
let org: Organization;
const { call, configVersion, signInAgain } = useNumbered((made) => ({ server, org } = made));

const hubFields = { is_lighthouse: true, is_relay: true, public_ip: "192.0.2.1" };
const everyMs = 60_000;
/** `afterMs`: the last one. */
async function report(node: RegisteredNode, counter: string, bytes: number, afterMs = everyMs) {
  server.clock.ms += afterMs;
  return v.parse(
    v.optional(RelayedAnswer),
    checkinOf(await node.checkin({ relayed: { counter, bytes } })).relayed,
  );
}
const relays = async () => v.parse(v.array(Relay), (await call("GET", "relays/")).json);
const limit = (node: { id: number }, limit_bytes: number | null) =>
  call("PATCH", `relays/${node.id}/`, { limit_bytes });
const Config = v.object({ relay: v.object({ relays: v.array(v.string()), am_relay: v.boolean() }) });
const configOf = async (node: RegisteredNode) =>
  v.parse(Config, Bun.YAML.parse(downloadOf(await node.download()).files["config.yml"])).relay;
async function events(type: string): Promise<unknown[]> {
  const { json } = await call("GET", "events/?limit=1000");
  return v.parse(v.array(v.looseObject({ type: v.string() })), json).filter((each) => each.type === type);
}
/** The first day of the next month, UTC. */
function nextMonth(): void {
  const now = new Date(server.clock.ms);
  server.clock.ms = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1, 12);
}

test("bytes are added up within a month, over restarts of the machine, and begin anew with the next one", async () => {
  const hub = await registerNode(server, org, "hub", hubFields);
  expect(await relays()).toMatchObject([{ node_name: "hub", bytes: null, limit_bytes: null, paused: false }]);
  // What it counted before it was asked may be of any month.
  expect(await report(hub, "c1", 5_000_000)).toEqual({ bytes: 0, limit_bytes: null, paused: false });
  expect(await report(hub, "c1", 7_000_000)).toMatchObject({ bytes: 2_000_000 });
  expect(await report(hub, "c1", 7_000_000)).toMatchObject({ bytes: 2_000_000 });
  // Another counter, and one that began anew under its name.
  expect(await report(hub, "c2", 500)).toMatchObject({ bytes: 2_000_500 });
  expect(await report(hub, "c2", 100)).toMatchObject({ bytes: 2_000_600 });
  expect(await relays()).toMatchObject([{ bytes: 2_000_600, reported_at: expect.any(String) }]);
  nextMonth();
  await signInAgain();
  expect(await relays()).toMatchObject([{ bytes: 0 }]);
  expect(await report(hub, "c2", 300)).toMatchObject({ bytes: 200 });
});

test("a report that a later one overtook counts nothing twice", async () => {
  const hub = await registerNode(server, org, "hub", hubFields);
  await report(hub, "c1", 0);
  expect(await report(hub, "c1", 5000)).toMatchObject({ bytes: 5000 });
  // Sent before the one above.
  expect(await report(hub, "c1", 4000, 500)).toMatchObject({ bytes: 5000 });
  expect(await report(hub, "c1", 6000)).toMatchObject({ bytes: 6000 });
  expect(await report(hub, "c2", 100)).toMatchObject({ bytes: 6100 });
  // Of the former counter.
  expect(await report(hub, "c1", 6000, 500)).toMatchObject({ bytes: 6100 });
  expect(await report(hub, "c2", 300)).toMatchObject({ bytes: 6300 });
  // Another counter that comes at once loses nothing: its next report counts all of it.
  expect(await report(hub, "c3", 10, 500)).toMatchObject({ bytes: 6300 });
  expect(await report(hub, "c3", 10)).toMatchObject({ bytes: 6310 });
});

test("a relay that reaches its limit is in no configuration until the next month", async () => {
  const hub = await registerNode(server, org, "hub", hubFields);
  const second = await registerNode(server, org, "second", { is_relay: true, public_ip: "192.0.2.2" });
  const node = await registerNode(server, org, "node");
  await report(hub, "c1", 0);
  expect((await limit(hub, 1_000_000)).json).toMatchObject({ limit_bytes: 1_000_000, paused: false });
  const before = await configVersion();
  expect(await report(hub, "c1", 999_999)).toMatchObject({ bytes: 999_999, paused: false });
  expect(await configVersion()).toBe(before);
  expect(await configOf(node)).toMatchObject({ relays: [hub.ip, second.ip] });
  expect(await report(hub, "c1", 1_000_000)).toMatchObject({ paused: true, limit_bytes: 1_000_000 });
  expect(await configVersion()).toBe(before + 1);
  expect(await configOf(node)).toMatchObject({ relays: [second.ip] });
  // It does not use others meanwhile: that is not what was asked for. It is a lighthouse still, on its port.
  expect(await configOf(hub)).toEqual({ relays: [], am_relay: false });
  const files = downloadOf(await node.download()).files["config.yml"];
  expect(files).toContain("192.0.2.1:4242");
  expect(await report(hub, "c1", 1_000_500)).toMatchObject({ paused: true });
  expect(await events("node.relay_paused")).toMatchObject([
    { subject: `node/${hub.id}`, after: { bytes: 1_000_000, limit_bytes: 1_000_000 } },
  ]);
  nextMonth();
  expect(await report(hub, "c1", 1_000_500)).toEqual({ bytes: 0, limit_bytes: 1_000_000, paused: false });
  expect(await configOf(node)).toMatchObject({ relays: [hub.ip, second.ip] });
  expect(await configOf(hub)).toMatchObject({ am_relay: true });
  await signInAgain();
  expect(await events("node.relay_resumed")).toHaveLength(1);
});

test("a higher limit, or none, ends the pause at once; a lower one begins it", async () => {
  const hub = await registerNode(server, org, "hub", hubFields);
  await report(hub, "c1", 0);
  await report(hub, "c1", 3_000_000);
  expect((await limit(hub, 2_000_000)).json).toMatchObject({ paused: true });
  expect(await configOf(hub)).toMatchObject({ am_relay: false });
  expect(await report(hub, "c1", 3_000_000)).toMatchObject({ paused: true });
  expect((await limit(hub, 4_000_000)).json).toMatchObject({ paused: false });
  // The relay learns of it though its counter stands still.
  expect(await report(hub, "c1", 3_000_000)).toMatchObject({ paused: false, limit_bytes: 4_000_000 });
  await limit(hub, 1_000_000);
  expect((await limit(hub, null)).json).toMatchObject({ paused: false, limit_bytes: null });
  expect(await events("node.relay_limited")).toHaveLength(4);
});

test("reports of other nodes, damaged ones, and limits of nodes that are no relays count nothing", async () => {
  const node = await registerNode(server, org, "node");
  expect(await report(node, "c1", 5)).toBeUndefined();
  const hub = await registerNode(server, org, "hub", hubFields);
  for (const relayed of [{ counter: "c1", bytes: -1 }, { counter: "C 1", bytes: 1 }, { bytes: 1 }, "much"])
    expect(checkinOf(await hub.checkin({ relayed })).relayed).toBeUndefined();
  expect(await relays()).toMatchObject([{ node_name: "hub", bytes: null }]);
  expect(codeOf(await limit(node, 5_000_000))).toEqual([409, "conflict"]);
  expect(codeOf(await limit({ id: 999_999 }, 5_000_000))).toEqual([404, "not_found"]);
  expect((await limit(hub, 5)).status).toBe(400);
  // An administrator's check-in in the node's name is no report.
  const body = { version: "1.0.0", uptime: 1, relayed: { counter: "c1", bytes: 1 } };
  expect(checkinOf(await call("POST", `nodes/${hub.id}/checkin/`, body)).relayed).toBeUndefined();
});

test("the metrics have what each relay forwarded this month, and its limit", async () => {
  const forwarded = async () =>
    (await writeMetrics(server.app.services))
      .split("\n")
      .filter((line) => line.startsWith("overlay_agent_relay_") && line.includes(`"${org.slug}"`))
      .map((line) => line.replace("overlay_agent_relay_", "").replace(`organization="${org.slug}",`, ""));
  const hub = await registerNode(server, org, "hub", hubFields);
  expect(await forwarded()).toEqual([]);
  await report(hub, "c1", 100);
  await report(hub, "c1", 2_000_100);
  expect(await forwarded()).toEqual(['forwarded_bytes_total{node="hub"} 2000000']);
  await limit(hub, 5_000_000);
  expect(await forwarded()).toEqual([
    'forwarded_bytes_total{node="hub"} 2000000',
    'limit_bytes{node="hub"} 5000000',
  ]);
  nextMonth();
  expect((await forwarded())[0]).toBe('forwarded_bytes_total{node="hub"} 0');
});
