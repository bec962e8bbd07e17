// What nodes report of their health, and what the control plane tells a lighthouse that cannot know by itself whether it is
// missed.

import { expect, test } from "bun:test";
import { findingWords } from "../../../src/protocol/finding-kinds.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { checkinOf, registerNode } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;

const { showNode } = useNumbered((made) => ({ server, org } = made));

test("each kind of finding that a node reports is shown with it, until the next report", async () => {
  const node = await registerNode(server, org, "web");
  for (const kind of Object.keys(findingWords)) {
    await node.checkin({ overlay_state: kind });
    expect(await showNode(node)).toMatchObject({ finding: kind });
  }
  for (const other of ["running", "stopped", "of a newer node", "toString"]) {
    await node.checkin({ overlay_state: other });
    expect(await showNode(node)).toMatchObject({ finding: null });
  }
});

test("a lighthouse that asks is told if it calls from another address than the one where nodes look for it", async () => {
  const hub = await registerNode(server, org, "hub", { is_lighthouse: true, public_ip: "198.51.100.7" });
  const told = async (address: string, sent: Record<string, unknown> = { others: true }) =>
    checkinOf(await hub.checkin(sent, { address })).elsewhere;
  expect(await told("198.51.100.7")).toBeUndefined();
  expect(await told("198.51.100.8")).toEqual({ public_ip: "198.51.100.7", seen: "198.51.100.8" });
  expect(await told("198.51.100.8", {})).toBeUndefined();
  // Through a private network, a local proxy or the other family it may have other addresses as well.
  for (const address of ["10.0.0.5", "127.0.0.1", "169.254.1.1", "2001:db8::7"])
    expect([address, await told(address)]).toEqual([address, undefined]);
  const second = await registerNode(server, org, "hub6", { is_lighthouse: true, public_ip: "2001:db8:1::7" });
  const sees = async (address: string) =>
    checkinOf(await second.checkin({ others: true }, { address })).elsewhere?.seen;
  // Machines call from temporary addresses of the same network (RFC 8981).
  expect(await sees("2001:db8:1::1234")).toBeUndefined();
  expect(await sees("2001:db8:2::7")).toBe("2001:db8:2::7");
  const third = await registerNode(server, org, "hub-name", {
    is_lighthouse: true,
    public_ip: "hub.example.org",
  });
  expect(
    checkinOf(await third.checkin({ others: true }, { address: "198.51.100.9" })).elsewhere,
  ).toBeUndefined();
});

test("a lighthouse that asks is told whether another node is online, whose engine runs", async () => {
  const hub = await registerNode(server, org, "hub");
  const ask = async () => checkinOf(await hub.checkin({ others: true })).others_online;
  expect(checkinOf(await hub.checkin({})).others_online).toBeUndefined();
  expect(await ask()).toBe(false);
  const web = await registerNode(server, org, "web");
  expect(await ask()).toBe(false);
  await web.checkin({ overlay_state: "running" });
  await server.app.services.reports.stop();
  expect(await ask()).toBe(true);
  await web.checkin({ overlay_state: "lighthouses_silent" });
  await server.app.services.reports.stop();
  expect(await ask()).toBe(true);
  await web.checkin({ overlay_state: "stopped" });
  await server.app.services.reports.stop();
  expect(await ask()).toBe(false);
  await web.checkin({ overlay_state: "running" });
  await server.app.services.reports.stop();
  server.clock.ms += 151_000;
  expect(await ask()).toBe(false);
});
