// Two machines with the keys of one node.

import { expect, test } from "bun:test";
import * as v from "valibot";
import type { Organization } from "../../../../src/api/organizations.ts";
import { makeClones } from "../../../../src/server/nodes/contact/clones.ts";
import { checkinOf, registerNode, type RegisteredNode } from "../../../support/nodes.ts";
import { useNumbered } from "../../../support/numbered.ts";
import { makeRandom } from "../../../support/random.ts";
import type { TestServer } from "../../../support/server.ts";
import { until } from "../../../support/until.ts";

let server: TestServer;
let org: Organization;

const { call, callNode, parked, showNode } = useNumbered((made) => ({ server, org } = made));

const minute = 60_000;
const [original, copy] = ["0123456789abcdef", "fedcba9876543210"];
const isTold = async (node: RegisteredNode, machine?: string, wait?: number) => {
  const sent = { overlay_state: "running", ...(machine === undefined ? {} : { machine }) };
  return checkinOf(await node.checkin(sent, wait === undefined ? {} : { wait })).cloned;
};
const Events = v.array(v.object({ subject: v.string(), actor: v.string(), after: v.string() }));
const events = async () => {
  await Bun.sleep(50);
  const sql = "SELECT subject, actor, after FROM events WHERE org_id = $1 AND type = 'node.cloned'";
  return v.parse(Events, await server.db.all(sql, [org.id]));
};
const needing = async () => {
  await server.app.services.reports.stop();
  return (await call("GET", "nodes/attention/")).json;
};

test("machines that alternate are told, with an event an hour, the node and the list of what needs a person", async () => {
  const node = await registerNode(server, org, "web");
  expect([await isTold(node, original), await isTold(node, copy)]).toEqual([undefined, undefined]);
  expect(await events()).toEqual([]);
  // The answer has news: it is not held.
  expect(await isTold(node, original, 50)).toBe(true);
  expect(await isTold(node, copy)).toBe(true);
  expect(await showNode(node)).toMatchObject({ finding: "cloned" });
  expect(await needing()).toMatchObject({ cloned: { count: 1, first: [{ id: node.id, name: "web" }] } });
  expect(await events()).toMatchObject([
    {
      subject: `node/${node.id}`,
      after: '{"name":"web","cure":"On the copy alone: agent up --new-keys --node-name NAME"}',
    },
  ]);
  for (let at = 0; at < 59; at += 1) {
    server.clock.ms += minute;
    expect(await isTold(node, at % 2 === 0 ? original : copy)).toBe(true);
  }
  expect(await events()).toHaveLength(1);
  for (const machine of [copy, original, copy]) {
    server.clock.ms += minute;
    await isTold(node, machine);
  }
  // It is recorded beside the answer.
  await until(async () => (await events()).length === 2, { what: "the event of the next hour" });
});

test("the poll that the other machine holds is answered at once, and not held again for what it knows", async () => {
  const node = await registerNode(server, org, "web");
  await isTold(node, original);
  const held = isTold(node, copy, 50);
  await parked(node);
  expect(await isTold(node, original, 50)).toBe(true);
  expect(await held).toBe(true);
  const next = isTold(node, original, 50);
  await parked(node);
  expect(await Promise.race([next, Bun.sleep(100).then(() => "held")])).toBe("held");
  await callNode("PATCH", node, "", { config_overrides: { tun: { mtu: 1400 } } });
  expect(await next).toBe(true);
});

test("it ends when one of them has been silent for two and a half minutes", async () => {
  const node = await registerNode(server, org, "web");
  for (const machine of [original, copy, original]) await isTold(node, machine);
  server.clock.ms += 2 * minute;
  expect(await isTold(node, original)).toBe(true);
  server.clock.ms += minute;
  expect(await isTold(node, original)).toBeUndefined();
  expect(await showNode(node)).toMatchObject({ finding: null });
  expect(await needing()).toMatchObject({ cloned: { count: 0 } });
});

test("while both are there it does not change, however irregularly they check in, and it ends in good time", async () => {
  const random = makeRandom(7);
  // Held polls; pauses after failures; two or three of them in a row; a laptop that is seldom awake.
  for (const longestS of [60, 125, 250, 500]) {
    const node = await registerNode(server, org, `web-${longestS}`);
    const from = server.clock.ms;
    const next = { [original]: from, [copy]: from + 5000 };
    const told: boolean[] = [];
    while (server.clock.ms - from < 3 * 60 * minute) {
      const machine = (next[original] ?? 0) <= (next[copy] ?? 0) ? original : copy;
      server.clock.ms = Math.max(server.clock.ms, next[machine] ?? 0);
      told.push((await isTold(node, machine)) === true);
      const everyS = machine === original ? 55 : longestS * (0.8 + 0.2 * random());
      next[machine] = server.clock.ms + Math.round(everyS * 1000);
    }
    // From the second return on, when the pace of both is known.
    const changes = told.flatMap((each, at) => (at > 0 && each !== told[at - 1] ? [at] : []));
    const settled = told.lastIndexOf(false) + 1;
    expect([longestS, changes.length <= 3, settled < 20]).toEqual([longestS, true, true]);
    await isTold(node, original);
    server.clock.ms += Math.max(150_000, 2.5 * longestS * 1000) + 1000;
    expect([longestS, await isTold(node, original)]).toEqual([longestS, undefined]);
  }
});

test("reboots, a machine that comes back later, agents that do not tell, and users are no clones", async () => {
  const node = await registerNode(server, org, "web");
  for (const boot of ["a", "b", "c", "d", undefined, "d", undefined])
    expect(await isTold(node, boot)).toBeUndefined();
  server.clock.ms += 11 * minute;
  expect(await isTold(node, "c")).toBeUndefined();
  const path = `nodes/${node.id}/checkin/`;
  for (const machine of ["x", "y", "x", "c"])
    expect((await call("POST", path, { version: "1", uptime: 1, machine })).json).not.toHaveProperty(
      "cloned",
    );
  expect(await events()).toEqual([]);
});

test("it ends in time although the clock is set back meanwhile", () => {
  const { db, log, system } = server.app.services;
  const clock = { wall: server.clock.ms, passed: 0 };
  const now = () => clock.wall;
  const clones = makeClones({ db, log, system: { ...system, now, monotonic: () => clock.passed } });
  for (const machine of [original, copy, original])
    clones.take({ orgId: org.id, nodeId: 1, machine, address: "192.0.2.1" });
  expect(clones.has(1)).toBe(true);
  clock.wall -= 24 * 60 * minute;
  clock.passed += 3 * minute;
  expect(clones.has(1)).toBe(false);
});
