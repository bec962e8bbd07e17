// What nodes report of their health, and what the control plane tells a lighthouse that cannot know by itself whether it is
// missed.

import { expect, test } from "bun:test";
import { findingWords } from "../../../src/finding-kinds.ts";
import type { Organization } from "../../../src/server/policy/organizations.ts";
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

test("a lighthouse that asks is told whether another node is online, whose engine runs", async () => {
  const hub = await registerNode(server, org, "hub");
  const ask = async () => checkinOf(await hub.checkin({ others: true })).others_online;
  expect(checkinOf(await hub.checkin({})).others_online).toBeUndefined();
  expect(await ask()).toBe(false);
  const web = await registerNode(server, org, "web");
  expect(await ask()).toBe(false);
  await web.checkin({ overlay_state: "running" });
  // Reports are written within a second.
  await Bun.sleep(900);
  expect(await ask()).toBe(true);
  await web.checkin({ overlay_state: "lighthouses_silent" });
  await Bun.sleep(900);
  expect(await ask()).toBe(true);
  await web.checkin({ overlay_state: "stopped" });
  await Bun.sleep(900);
  expect(await ask()).toBe(false);
  await web.checkin({ overlay_state: "running" });
  await Bun.sleep(900);
  server.clock.ms += 151_000;
  expect(await ask()).toBe(false);
});
